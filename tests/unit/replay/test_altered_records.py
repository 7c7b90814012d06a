"""A record may have been altered: a report of it is made, or refused in one line."""

from __future__ import annotations

import copy
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bftrainer.replay.record import storage
from bftrainer.replay.record.checked import checked
from bftrainer.replay.record.storage import ReportDataError
from bftrainer.replay.report import summary
from bftrainer.replay.report.course import window_words
from bftrainer.replay.report.drawing import natural
from bftrainer.replay.report.timeline import raster

SHARES = ("efficiency_u", "linear_efficiency", "samples", "node_hours", "equivalent_nodes")
LOST = ("rescale_samples", "preemption_samples", "stall_node_hours", "init_node_hours", "idle_node_hours")
FIGURES: dict[str, Any] = dict.fromkeys((*SHARES, *LOST), 1.5) | {
    "events": 1,
    "completed": 1,
    "rescales": 1,
    "preemptions": 1,
    "decisions": 1,
    "decisions_preempted": 0,
    "unproven_decisions": 0,
    "turnaround_h": {"mean": 1.0},
    "runtime_h": {"mean": None},
    "runtime_by_model_h": {"m": 1.0, "k": None},
    "more": [1],
}
TRAINER = {
    "id": 1,
    "name": "t",
    "model": "m",
    "submitted": 0,
    "started": 0,
    "ended": None,
    "completed": False,
    "samples": 5,
    "node_s": 5,
}
WINDOW = {
    "begin": 0,
    "end": 10,
    "nodes": 1,
    "samples": 5,
    "efficiency_u": None,
    "linear_efficiency": 0.5,
    "rescale_samples": 0,
    "preemption_samples": 0,
}
STAY = {"node": [0], "trainer": [0], "begin": [0], "end": [1]}
RECORD: dict[str, Any] = {
    "format": "bftrainer replay 1",
    "name": "r",
    "begin": 100,
    "end": 110,
    "parameters": {"begin": None, "t_fwd_s": 10.0, "log": "x"},
    "figures": FIGURES,
    "nodes": ["n1", "n2"],
    "moments": {
        name: [0, 1]
        for name in (
            *("time", "pool", "used", "samples", "linear_node_s"),
            *("rescale_samples", "preemption_samples"),
        )
    },
    "decisions": {"time": [0], "t_fwd_s": [10], "preempted": [0]},
    "stays": {"node": [0, 1], "trainer": [0, 1], "begin": [0, 1], "end": [10, 5]},
    "trainers": [TRAINER],
    "windows": [WINDOW],
}
ODD = [
    *(
        None,
        True,
        0,
        -1,
        1.5,
        1e300,
        float("nan"),
        float("inf"),
        10**400,
        "",
        "x",
        "\ud800\x1b[31m",
        "9" * 5000,
    ),
    *([], {}, [None], [[1]], ["x"], [1, 2, 3], {"a": 1}, [{"a": 1}], {"mean": "x"}),
]


def places(value: object, where: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where all values in a value of JSON are."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [where, *(place for key, item in items for place in places(item, (*where, key)))]


def use(plain: object) -> None:
    """Check a record, and do what a report does with its content, without drawing."""
    data = checked(plain)
    for text in (data.name, *data.nodes, *(t.name for t in data.trainers)):
        text.encode()
        natural(text)
    summary.figures([data])
    summary.runtimes([data])
    summary.differing([data, data])
    str(summary.parameters(data)).encode()
    summary.utc(data.begin)
    window_words([data])
    raster(data)


def test_what_is_right_is_used() -> None:
    use(RECORD)


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(places(RECORD)), st.sampled_from(ODD), st.booleans())
def test_an_altered_record_is_used_or_refused(where: tuple[Any, ...], odd: object, left_out: bool) -> None:
    plain: Any = {"top": copy.deepcopy(RECORD)}
    *above, last = ("top", *where)
    inner = plain
    for key in above:
        inner = inner[key]
    if left_out:
        del inner[last]
    else:
        inner[last] = odd
    try:
        use(plain.get("top"))
    except ValueError as error:
        assert len(str(error).splitlines()) == 1 and len(str(error)) < 400
        str(error).encode()


@pytest.mark.parametrize(
    ("part", "value", "words"),
    [
        ("parameters", None, "parameters: "),
        ("figures", {}, "figures.efficiency_u: Field required"),
        ("windows", [], "windows: "),
        ("end", 100, "a replay ends after its begin"),
        ("windows", [{**WINDOW, "end": 0}], "one does not end after its begin"),
        ("moments", {"time": []}, "moments: its columns are not time, pool"),
        (
            "stays",
            {"node": [2], "trainer": [0], "begin": [0], "end": [1]},
            "stays.node: a number is not from 0",
        ),
        (
            "stays",
            {"node": [0], "trainer": [], "begin": [0], "end": [1]},
            "stays.trainer: not as long as node",
        ),
        ("decisions", {"time": [None], "t_fwd_s": [1], "preempted": [0]}, "decisions.time: a number is not"),
        ("decisions", {"time": ["x"], "t_fwd_s": [1], "preempted": [0]}, "decisions.time: not numbers"),
        ("trainers", [{"id": 1}], "trainers.0.name"),
        ("trainers", [{**TRAINER, "samples": float("nan")}], "trainers.0.samples: Input should be a finite"),
    ],
)
def test_the_message_says_where(tmp_path: Path, part: str, value: object, words: str) -> None:
    path = tmp_path / "r.json.gz"
    path.write_bytes(gzip.compress(json.dumps({**RECORD, part: value}).encode()))
    with pytest.raises(ReportDataError) as error:
        storage.read(path)
    said = str(error.value)
    assert said.startswith(f"{path}: no record of a replay (") and words in said
