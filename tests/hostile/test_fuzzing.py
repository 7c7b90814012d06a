"""Whatever agents and users say: no 500, no exception in the log, and the daemon answers afterwards.

Values follow the schemas of messages and specs, so that a new kind or key is fuzzed without a word here. Each
test takes rounds of examples until its time is over: FUZZ_SECONDS for all of them, 60 by default. Round n has
the seed n, and no examples are kept from earlier runs: CI tries the same in the same order on every commit,
and how far it comes is all that depends on the machine. A longer night goes on where CI stops.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from bftrainer.api.callers import Callers
from bftrainer.api.routes import users_application
from bftrainer.search.files.schema import StudyForm
from bftrainer.spec.schema import Spec
from bftrainer.wire.messages import from_agent
from tests.support.hostile.in_process import Fuzzed, fuzzed
from tests.support.hostile.values import ANYTHING, LEAVES, TEXTS, Values, fitting, spoilt
from tests.support.messages import kinds

SECONDS = float(os.environ.get("FUZZ_SECONDS", "60")) / 4
ENDLESS = "/v1/feed"
"""It never stops answering: test_web_and_feed.py attacks it."""
EXAMPLES = 50
WORDS = ("events", "pauses", "reports", "pause", "1", "-1", "0", "9" * 30, "%00", "..", "a.b", "spec")
WORKERS = {kind.model_fields["type"].annotation.__args__[0] for kind in from_agent.FromWorker.__args__}


@pytest.fixture(scope="module")
def daemon() -> Iterator[Fuzzed]:
    with tempfile.TemporaryDirectory(prefix="bft-") as folder, fuzzed(Path(folder)) as found:
        yield found


def fuzz(values: Values, check: Callable[[Any], None]) -> None:
    """Check examples until the time is over; an error comes with the one that shows it."""
    until = time.monotonic() + SECONDS
    for number in count():
        found = seed(number)(given(values)(check))
        settings(
            max_examples=EXAMPLES,
            database=None,
            deadline=None,
            phases=(Phase.generate,),  # examples are short; to make them shorter may take minutes
            suppress_health_check=list(HealthCheck),
        )(found)()
        if time.monotonic() > until:
            return


def messages() -> Values:
    """What an agent may say: all kinds, well and badly formed, those of workers in the agent's words."""
    found: list[Values] = []
    for name, kind in kinds(from_agent).items():
        schema = kind.model_json_schema()
        values = spoilt(fitting(schema, schema.get("$defs", {})))
        found.append(values.map(lambda said: {"type": "worker", "said": said}) if name in WORKERS else values)
    return st.lists(st.one_of(*found, ANYTHING), min_size=1, max_size=5)


def test_messages(daemon: Fuzzed) -> None:
    def check(said: list[Any]) -> None:
        daemon.say(said)
        daemon.assert_well()

    fuzz(messages(), check)


@st.composite
def texts_of_specs(draw: st.DrawFn) -> str:
    """Specs, well and badly formed, of which some letters are others, missing or doubled."""
    schema = Spec.model_json_schema()
    return changed(draw, draw(spoilt(fitting(schema, schema["$defs"]))))


def changed(draw: st.DrawFn, value: Any) -> str:
    """The text of a value, some letters of which are others, missing or doubled."""
    text = json.dumps(value, indent=draw(st.sampled_from([None, 1])))
    for _ in range(draw(st.integers(0, 2))):
        at, length = draw(st.integers(0, len(text))), draw(st.integers(0, 8))
        new = draw(st.one_of(st.just(""), st.sampled_from(["&a", "*a", "!!", "- ", ": ", "\t", "'"]), TEXTS))
        text = text[:at] + new + text[at + length :]
    return text


def test_specs(daemon: Fuzzed) -> None:
    def check(spec: str) -> None:
        status, said = daemon.submit(spec)
        assert status in (201, 400, 413, 429), (status, said)
        daemon.assert_well()

    fuzz(texts_of_specs(), check)


BOUNDS = st.lists(st.integers(-5, 10**6) | st.floats(0, 1e300), min_size=2, max_size=2).map(sorted)
RANGES: Values = st.one_of(
    st.fixed_dictionaries({"float": BOUNDS}, optional={"step": st.floats(1e-300, 1e3), "log": st.booleans()}),
    st.fixed_dictionaries({"int": BOUNDS}, optional={"points": st.integers(1, 10**6)}),
    st.fixed_dictionaries({"choice": st.lists(LEAVES, min_size=1, max_size=5)}),
)


USUAL: dict[str, Any] = {"name": "fuzzed", "metric": "m", "trials": 3, "budget": 10}
TEMPLATE = {"command": ["true", "{params}"], "nodes": {"max": 1}}


@st.composite
def texts_of_studies(draw: st.DrawFn) -> str:
    """Studies: such of any values, and such that may run but for a key or two."""
    schema = StudyForm.model_json_schema()
    values = {key: fitting(one, schema["$defs"]) for key, one in schema["properties"].items()}
    if draw(st.booleans()):
        return changed(draw, draw(spoilt(fitting(schema, schema["$defs"]))))
    study = USUAL | {"trainer": TEMPLATE, "space": {"p": draw(RANGES)}}
    study |= {key: draw(values[key]) for key in draw(st.lists(st.sampled_from(sorted(values)), max_size=2))}
    return json.dumps(study)


def test_studies(daemon: Fuzzed) -> None:
    def check(study: str) -> None:
        status, said = daemon.submit_study(study)
        assert status in (201, 400, 413, 429), (status, said)
        daemon.assert_well()

    fuzz(texts_of_studies(), check)


@st.composite
def requests(draw: st.DrawFn, routes: list[tuple[str, str]]) -> tuple[str, str, bytes]:
    """Requests to the routes that there are, and to others."""
    method, path = draw(st.sampled_from(routes))
    method = draw(st.sampled_from([method, method, method, "GET", "POST", "PUT", "DELETE", "PATCH", "TRACE"]))
    words = st.one_of(
        st.sampled_from(
            ["events", "pauses", "reports", "pause", "resume", "1", "-1", "0", "9" * 30, "%00", "..", "a.b"]
        ),
        st.text(max_size=10).map(quoted),
    )
    parts = [draw(words) if part.startswith("{") else part for part in path.split("/")]
    names = st.sampled_from(["limit", "skip", "trainer", "x", "format", "user", "after"]) | words
    query = "&".join(f"{draw(names)}={draw(words)}" for _ in range(draw(st.integers(0, 3))))
    body = draw(
        st.one_of(
            st.binary(max_size=50),
            ANYTHING.map(lambda value: json.dumps(value).encode()),
            st.fixed_dictionaries({}, optional=dict.fromkeys(("spec", "name", "base"), ANYTHING)).map(
                lambda value: json.dumps(value).encode()
            ),
        )
    )
    return method, "/".join(parts) + (f"?{query}" if query else ""), body


def quoted(text: str) -> str:
    """A text as a path or query may have it, halves of surrogate pairs too."""
    return "".join(f"%{byte:02X}" for byte in text.encode("utf-8", "surrogatepass"))


def test_requests(daemon: Fuzzed) -> None:
    app = users_application(daemon.daemon.service, Callers(), max_request=1000)
    routes = [(r.method, r.resource.canonical) for r in app.router.routes() if r.resource is not None]

    def check(request: tuple[str, str, bytes]) -> None:
        status, said = daemon.ask(*request)
        assert 200 <= status < 500, (status, said)
        daemon.assert_well()

    fuzz(
        requests([(method, path) for method, path in routes if "/admin/" not in path and path != ENDLESS]),
        check,
    )
