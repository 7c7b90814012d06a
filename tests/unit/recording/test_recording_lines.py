"""What is written of a poll, and that what is read again is what was seen."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.model.machine import Node, NodeState, Snapshot, Totals
from bftrainer.model.main_jobs import MainJob
from bftrainer.nodesets import folded
from bftrainer.recording.lines import failed, line, machine
from bftrainer.traces.formats.snapshots import _names

NOW = 1763868000.0
IDLE, BUSY = NodeState.IDLE, NodeState.BUSY


def snapshot(*nodes: Node, time: float = NOW) -> Snapshot:
    job = MainJob(job="4711", nodes=2)
    return Snapshot(time=time, nodes=nodes, main=(job,), waiting=frozenset({"4711", "4712"}))


def test_a_line_has_the_whole_machine_and_neither_jobs_nor_users() -> None:
    shown = snapshot(
        Node(name="n1", state=IDLE),
        Node(name="n2", state=IDLE, until=NOW + 600),
        Node(name="n3", state=BUSY, why="job 815"),
        Node(name="n4", state=BUSY, why="claimed by job 4711"),
        Node(name="n5", state=BUSY, why="drained"),
    )
    told = json.loads(line(shown, machine(shown), None))
    assert told.pop("time").startswith("2025-11-2") and told.pop("until")[0][1] == "n2"
    assert told == {
        "idle": "n[1-2]",
        "busy": {"claimed": "n4", "drained": "n5", "job": "n3"},
        "waiting": 2,
    }
    assert "815" not in line(shown, machine(shown), None)


def test_what_has_not_changed_is_not_told_again() -> None:
    before = machine(snapshot(Node(name="n1", state=IDLE)))
    later = snapshot(Node(name="n1", state=IDLE), time=NOW + 10)
    told = json.loads(line(later, machine(later), before))
    assert set(told) == {"time", "same", "waiting"}


def test_totals_are_told_where_they_have_changed() -> None:
    def seen(time: float, totals: Totals | None) -> Snapshot:
        return replace(snapshot(Node(name="n1", state=IDLE), time=time), totals=totals)

    first = seen(NOW, Totals(running=2, eligible=3, blocked=1, wanted=270, used=4544, nodes=4604))
    told = json.loads(line(first, machine(first), None))
    assert told["totals"] == {
        "running": 2,
        "eligible": 3,
        "blocked": 1,
        "wanted": 270,
        "used": 4544,
        "nodes": 4604,
    }
    again = seen(NOW + 10, first.totals)
    assert "totals" not in json.loads(line(again, machine(again), machine(first)))
    without = seen(NOW + 20, Totals(running=1, eligible=0, blocked=0, wanted=0))
    told = json.loads(line(without, machine(without), machine(again)))
    assert told["same"] is True
    assert told["totals"] == {"running": 1, "eligible": 0, "blocked": 0, "wanted": 0}
    gone = seen(NOW + 30, None)
    assert json.loads(line(gone, machine(gone), machine(without)))["totals"] is None


def test_a_failed_poll_does_not_say_why() -> None:
    assert set(json.loads(failed(NOW))) == {"time", "failed"}


def test_times_name_their_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Zurich")
    import time

    time.tzset()
    assert json.loads(failed(NOW))["time"] == "2025-11-23T04:20:00.000+01:00"
    monkeypatch.undo()
    time.tzset()


@given(st.sets(st.from_regex(r"[a-z]{1,2}([0-9]{1,3}(-[0-9]{1,2})?)?(\.x)?", fullmatch=True)))
def test_folded_names_are_read_again(names: set[str]) -> None:
    assert set(_names(folded(names))) == names


def test_ranges_are_short() -> None:
    names = [f"{row}{number:02d}n{n:02d}" for row in "abcdefgh" for number in range(32) for n in range(1, 19)]
    assert len(folded(names)) < 3200
    assert folded(["n1", "n2", "n03", "n04", "login"]) == "login,n[1-2,03-04]"
