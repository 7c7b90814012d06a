"""What agents may say, what is dropped, and that every message sent anywhere is in the schema."""

from __future__ import annotations

import json
import math
import re
from itertools import chain
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

import bftrainer
from bftrainer.wire.messages import from_agent, helpers, to_agent
from bftrainer.wire.messages.fields import MAX_ENTRY, MAX_METRICS, MAX_TEXT, MAX_TEXTS, MAX_WORKERS
from bftrainer.wire.messages.from_agent import (
    Exited,
    Finished,
    FromWorker,
    Hello,
    Kv,
    Progress,
    read,
    running,
)
from bftrainer.wire.words import OF_WORKERS
from tests.support.messages import kinds

ABOUT = {"trainer": 1, "started": 2, "run": 0}
PROGRESS = {
    **ABOUT,
    "type": "progress",
    "generation": 3,
    "size": 4,
    "step": 5,
    "samples": 6,
    "epoch": 0,
    "rate": 7.5,
    "at": 1.7e9,
    "metrics": {"loss": 0.5, "best": math.nan, "count": 3},
    "problem": "",
}
JOINED = {
    **ABOUT,
    "type": "joined",
    "generation": 2,
    "step": 0,
    "size": 1,
    "survivor": False,
    "pause_s": 0.1,
}
RESUMED = {**ABOUT, "type": "resumed", "generation": 2, "step": 4, "size": 1, "at": 1.0, "pause_s": None}
ENTRY = {**ABOUT, "type": "kv", "key": "0/thing", "value": "dGhpbmc=", "generation": 3}
EXITED = {**ABOUT, "type": "exited", "code": -9, "reason": "", "last": {}, "phase": "leaving"}
BROKEN = {**ABOUT, "type": "broken", "generation": 2, "reason": "timed out"}
UNPRINTABLE = ("\ud800", "red \x1b[31m", "two\nlines", "\x00", "\u202e")
RUNNING = {"trainer": 1, "generation": 2, "run": 0, "phase": "member", "joined": 3, "workers": 1}


def passed(message: dict[str, Any]) -> dict[str, Any]:
    """A message of a worker as its agent passes it on; an agent's own as it is."""
    if message.get("type") == "exited":
        return message
    own = {name: value for name, value in message.items() if name not in ABOUT}
    return {"type": "worker", **{name: message[name] for name in ABOUT if name in message}, "said": own}


def said(message: dict[str, Any]) -> Any:
    """What is read of a message, without whom it is about."""
    report = read(passed(message))
    assert report is not None
    return report.said


def test_what_workers_and_agents_say_is_read() -> None:
    report = read(passed({**PROGRESS, "trainer": 7}))
    assert report is not None and (report.trainer, report.started, report.run) == (7, 2, 0)
    assert isinstance(report.said, Progress) and report.said.samples == 6
    assert json.dumps(report.said.metrics) == '{"loss": 0.5, "best": NaN, "count": 3}', "as they were said"
    assert said({**PROGRESS, "rate": None, "metrics": {}}).rate is None
    assert said(RESUMED).pause_s is None, "a script's first step on its node"
    assert said(JOINED).pause_s == 0.1
    assert said({**ABOUT, "type": "ready"}).generation == 0
    assert isinstance(said(ENTRY), Kv) and said(ENTRY).value == "dGhpbmc="


def test_the_last_words_of_a_worker_come_with_its_end() -> None:
    last = {**PROGRESS, "type": "finished"}
    end = said({**EXITED, "code": 0, "last": last})
    assert isinstance(end, Exited) and isinstance(end.last, Finished) and end.last.step == 5
    assert said(EXITED).last is None


@pytest.mark.parametrize("last", [{**PROGRESS, "samples": "6"}, {"type": "left"}, [1], None, EXITED])
def test_an_end_is_heard_whatever_was_said_last(last: Any) -> None:
    assert said({**EXITED, "last": last}).last is None


def test_unknown_kinds_are_ignored_and_unknown_fields_dropped() -> None:
    assert read({**ABOUT, "type": "of the future"}) is None
    assert read(passed({**ABOUT, "type": "of the future"})) is None
    assert not hasattr(said({**PROGRESS, "colour": "red"}), "colour")


@pytest.mark.parametrize(
    ("message", "key", "value"),
    [
        (PROGRESS, "samples", "6"),
        (PROGRESS, "samples", -1),
        (PROGRESS, "samples", 2**63),
        (PROGRESS, "samples", True),
        (PROGRESS, "samples", 6.0),
        (PROGRESS, "step", None),
        (PROGRESS, "size", 0),
        (PROGRESS, "rate", "fast"),
        (PROGRESS, "rate", math.inf),
        (PROGRESS, "rate", 10**400),
        (PROGRESS, "rate", True),
        (PROGRESS, "at", math.nan),
        *((PROGRESS, "of", value) for value in (-1, 6.5, True, "6", math.inf, 10**16)),
        *((PROGRESS, "warned", value) for value in ("text", [3], ["x"] * (MAX_TEXTS + 1))),
        *((PROGRESS, "warned", [text]) for text in (*UNPRINTABLE, "x" * (MAX_TEXT + 1))),
        (PROGRESS, "problem", 3),
        (PROGRESS, "metrics", ["loss"]),
        (PROGRESS, "metrics", {"loss": "low"}),
        (PROGRESS, "metrics", {"loss": 10**400}),
        (PROGRESS, "metrics", {"loss": True}),
        (PROGRESS, "metrics", {"l" * 1000: 1.0}),
        (PROGRESS, "metrics", {str(i): 1.0 for i in range(MAX_METRICS + 1)}),
        (PROGRESS, "trainer", "1"),
        (PROGRESS, "started", -1),
        (PROGRESS, "run", None),
        (PROGRESS, "type", []),
        (JOINED, "pause_s", math.inf),
        (JOINED, "pause_s", math.nan),
        (JOINED, "pause_s", -0.1),
        (JOINED, "pause_s", None),
        (JOINED, "pause_s", 2e7),
        (JOINED, "survivor", 1),
        (RESUMED, "pause_s", "long"),
        (RESUMED, "at", None),
        (EXITED, "code", 1.0),
        (EXITED, "code", -(10**16)),
        (EXITED, "phase", "queen"),
        (EXITED, "phase", "stopped"),  # a phase that the daemon alone knows
        (BROKEN, "reason", 3),
        (BROKEN, "reason", "x" * (MAX_TEXT + 1)),
        *((BROKEN, "reason", text) for text in UNPRINTABLE),
        *((EXITED, "reason", text) for text in UNPRINTABLE),
        *((PROGRESS, "problem", text) for text in UNPRINTABLE),
        *((PROGRESS, "metrics", {text: 1.0}) for text in UNPRINTABLE),
        *((ENTRY, "key", text) for text in UNPRINTABLE),
        *((ENTRY, "value", value) for value in (*UNPRINTABLE, {"any": 1}, ["x"], "x" * (MAX_ENTRY + 1))),
    ],
)
def test_what_store_and_engine_could_not_take_is_refused(
    message: dict[str, Any], key: str, value: Any
) -> None:
    read(passed(message))
    with pytest.raises(ValueError):
        read(passed({**message, key: value}))


@pytest.mark.parametrize("message", [PROGRESS, JOINED, EXITED, BROKEN])
def test_a_message_that_lacks_a_field_is_refused(message: dict[str, Any]) -> None:
    optional = {"at", "problem"}
    for key in message.keys() - optional:
        with pytest.raises(ValueError):
            read(passed({name: value for name, value in message.items() if name != key}))


def test_what_an_agent_says_itself_is_nothing_that_a_worker_can_say() -> None:
    """A worker's script writes to its connection what it likes."""
    for kind in ("exited", "bye", "hello", "worker"):
        assert read({**ABOUT, "type": "worker", "said": {**EXITED, "type": kind}}) is None
    assert read({**PROGRESS, "said": {}}) is None, "nor is a worker's message one of its agent"
    assert {get_args(kind.model_fields["type"].annotation)[0] for kind in get_args(FromWorker)} == OF_WORKERS


@pytest.mark.parametrize(
    "message",
    [None, 3, "ready", [PROGRESS], {}, {"type": None}, {**ABOUT, "type": "worker"}]
    + [{**ABOUT, "type": "worker", "said": said} for said in (None, [], "ready")],
)
def test_what_is_no_message_is_refused(message: object) -> None:
    with pytest.raises(ValueError):
        read(message)


def test_entries_of_a_hello_that_make_no_sense_are_left_out() -> None:
    nonsense = [{}, 3, {**RUNNING, "phase": "queen"}, {**RUNNING, "joined": -1}, {**RUNNING, "trainer": "1"}]
    assert [found.model_dump() for found in running([*nonsense, RUNNING, *nonsense])] == [RUNNING]


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(json_values, st.sampled_from(sorted({*PROGRESS, *EXITED, *JOINED})), st.booleans())
def test_any_json_is_read_or_refused(value: Any, key: str, whole: bool) -> None:
    value = json.loads(json.dumps(value))
    for message in (PROGRESS, EXITED, JOINED):
        try:
            report = read(value if whole else passed({**message, key: value}))
        except ValueError:
            continue
        for count in ("samples", "step", "size"):
            number = getattr(report.said, count, 1) if report is not None else 1
            assert type(number) is int and number >= 0


ROOT = Path(bftrainer.__file__).parent
SPEAKERS = ("launch", "agent", "nodes", "daemon", "elastic", "wire", "testing")
LITERAL = re.compile(r"""["']type["']: ["'](\w+)["'](?: if \w+ else ["'](\w+)["'])?""")
CALL = re.compile(r"""(?:channel\.send|_say|_tell)\(\s*(?:type=)?["'](\w+)["']""")


def sent() -> dict[str, str]:
    """Each kind of message in the source of those that speak, and a file that has it."""
    found = {}
    for path in chain.from_iterable(sorted((ROOT / room).rglob("*.py")) for room in SPEAKERS):
        text = path.read_text(encoding="utf-8")
        calls = CALL.findall(text) if "elastic" in path.parts else []
        for kind in (*chain.from_iterable(LITERAL.findall(text)), *calls):
            found[kind] = str(path.relative_to(ROOT))
    found.pop("", None)
    return found


def test_every_kind_that_is_sent_is_in_the_schema_and_the_other_way_round() -> None:
    schema = {**kinds(from_agent), **kinds(to_agent), **kinds(helpers)}
    assert {"hello", "start", "progress", "later", "torn", "fork"} <= sent().keys(), "the search finds them"
    strange = {kind: path for kind, path in sent().items() if kind not in schema}
    assert not strange
    assert not schema.keys() - sent().keys(), "these are sent nowhere"
    undocumented = [kind for kind, cls in schema.items() if not cls.__doc__]
    assert not undocumented


def test_a_hello_says_node_and_workers() -> None:
    hello = {"type": "hello", "node": "n", "workers": [RUNNING]}
    assert Hello.model_validate(hello).node == "n"
    texts = [{**hello, "node": text} for text in ("", "n" * 300, *UNPRINTABLE)]
    too_many = {**hello, "workers": [RUNNING] * (MAX_WORKERS + 1)}
    assert Hello.model_validate(hello).devices is None, "an agent of an earlier version"
    many = {**hello, "devices": {"kind": "cuda", "count": 10**9, "out": []}}
    for wrong in ({**hello, "node": 1}, {**hello, "workers": 3}, [], {"node": "n"}, too_many, many, *texts):
        with pytest.raises(ValueError):
            Hello.model_validate(wrong)
