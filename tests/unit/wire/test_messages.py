"""What agents may say, and what is dropped."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.wire.messages import MAX_METRICS, sane

PROGRESS = {
    "type": "progress",
    "trainer": 1,
    "started": 2,
    "run": 0,
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


def test_what_workers_say_passes() -> None:
    assert sane(PROGRESS)
    assert sane({**PROGRESS, "rate": None, "metrics": {}})
    assert sane({"type": "exited", "code": -9, "reason": "", "last": {}, "phase": "leaving"})
    assert sane({"type": "exited", "code": 0, "reason": "", "last": PROGRESS, "phase": "member"})
    assert sane({**PROGRESS, "type": "resumed", "pause_s": None})  # a script's first step on its node
    assert sane({"type": "joined", "generation": 2, "step": 0, "size": 1, "survivor": False, "pause_s": 0.1})
    assert not sane({"type": "joined", "generation": 2, "step": 0, "size": 1, "survivor": False})
    assert sane({"type": "kv", "key": ["any", 1], "value": {"thing": True}, "generation": 3})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("samples", "6"),
        ("samples", -1),
        ("samples", 2**63),
        ("samples", True),
        ("samples", 6.0),
        ("step", None),
        ("size", 0),
        ("pause_s", math.inf),
        ("pause_s", math.nan),
        ("pause_s", -0.1),
        ("rate", "fast"),
        ("rate", math.inf),
        ("at", math.nan),
        ("metrics", ["loss"]),
        ("metrics", {"loss": "low"}),
        ("metrics", {"loss": 10**400}),
        ("metrics", {"l" * 1000: 1.0}),
        ("metrics", {str(i): 1.0 for i in range(MAX_METRICS + 1)}),
        ("reason", 3),
        ("reason", "x" * 100_000),
        ("last", {**PROGRESS, "samples": "6"}),
        ("last", [1]),
        ("phase", "queen"),
        ("survivor", 1),
        ("type", []),
    ],
)
def test_what_books_and_decisions_could_not_bear_is_dropped(key: str, value: Any) -> None:
    assert not sane({**PROGRESS, key: value})


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(json_values, st.sampled_from(sorted({*PROGRESS, "last", "code", "pause_s", "phase", "survivor"})))
def test_any_json_gets_an_answer(value: Any, key: str) -> None:
    value = json.loads(json.dumps(value))
    assert sane(value) in (True, False)
    if sane({**PROGRESS, key: value}) and key in ("samples", "step", "size"):
        assert type(value) is int and value >= 0
