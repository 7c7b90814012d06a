"""What a harvested testbed came to, from what was seen of it: the pure parts, and how they are shown."""

from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console

from benchmarks.testbeds import demo
from benchmarks.testbeds import runs as probe
from benchmarks.testbeds.harvest import Scene, outcome
from benchmarks.testbeds.runs import MainRun
from bftrainer.demo.summary import summarise
from bftrainer.demo.view import DaemonView
from slurm.testbed import machine


def run(number: int, size: int, submitted: float, started: float | None, ended: float | None) -> MainRun:
    return MainRun(
        number=number,
        id=number,
        size=size,
        run_s=4,
        limit_s=60,
        submitted=submitted,
        started=started,
        ended=ended,
        state="" if ended is None else "COMPLETED",
    )


def view(samples: int, *roles: str | None) -> DaemonView:
    """One node a role; pilots are up where there is one."""
    rows: list[dict[str, Any]] = [
        {
            "node": f"n{n}",
            "pilot": "up" if role else None,
            "trainer": "digits" if role else None,
            "role": role,
        }
        for n, role in enumerate(roles, 1)
    ]
    trainer = {
        "name": "digits",
        "status": "running",
        "members": ["n1"],
        "samples": samples,
        "rate": 1234.5,
    }
    return DaemonView(elapsed_s=0, pool={"size": len(roles), "nodes": rows}, trainers=[trainer], pauses=[])


MAIN = (run(1, 2, 100, 101, 109), run(2, 1, 104, 104.5, 110))


def pool(*rows: tuple[str, str | None, int, str]) -> DaemonView:
    """(node or GPU, role, GPUs of it, what its pilot has)."""
    nodes = [
        {"node": node, "pilot": "up" if role else None, "role": role, "gpus": gpus, "devices": devices}
        for node, role, gpus, devices in rows
    ]
    return DaemonView(elapsed_s=0, pool={"size": len(rows), "nodes": nodes}, trainers=[], pauses=[])


def test_a_pilot_of_a_part_of_a_node_counts_in_proportion_to_its_gpus() -> None:
    parts = pool(
        ("n1", "member", 4, "1 cuda"),
        ("n2", "joining", 4, "3 cuda; out of use: 2: 4 workers in a row failed on it"),
        ("n3", "member", 4, ""),
        ("n4", None, 4, ""),
        ("n5", "member", 0, ""),
    )
    scene = Scene(0, (), parts)
    assert (scene.held(), scene.training()) == (0.25 + 0.75 + 1 + 1, 0.25 + 1 + 1)


def test_single_gpus_are_parts_of_their_nodes() -> None:
    rows = [(f"n1:{i}", "member" if i < 1 else "joining" if i < 3 else None, 1, "1 cuda") for i in range(4)]
    scene = Scene(0, (), pool(*rows, ("n2:0", "member", 1, "1 cuda"), ("n2:1", None, 1, "")))
    assert (scene.held(), scene.training()) == (0.75 + 0.5, 0.25 + 0.5)


def test_shares_are_of_the_time_between_the_first_submission_and_the_last_end() -> None:
    scenes = [
        Scene(95, (), view(50, "member", "member", "member", "member")),  # before the load
        Scene(100, (), view(100, "member", "member", "joining", None)),
        Scene(104, MAIN[:1], view(160, "member", "joining", None, None)),
        Scene(110, MAIN, view(190, "member", None, None, None)),
        Scene(120, MAIN, view(900, "member", "member", "member", "member")),  # after it
    ]
    found = outcome(scenes, 4, 100, None)
    assert (found.begin, found.end, found.samples) == (100, 110, 90)
    assert found.main == pytest.approx((2 * 8 + 5.5) / 40)
    assert found.held == pytest.approx((3 * 4 + 2 * 6) / 40)
    assert found.trained == pytest.approx((2 * 4 + 1 * 6) / 40)
    assert found.training == ((100, 2), (104, 1), (110, 1))
    bare = outcome([Scene(100, (), None), Scene(111, MAIN, None)], 4, 100, None)
    assert (bare.held, bare.trained, bare.samples, bare.main) == (0, 0, 0, found.main)


def test_a_job_has_room_unless_main_jobs_want_its_nodes() -> None:
    runs = [
        run(1, 2, 100, 101, 109),
        run(2, 2, 101, 101.2, 110),  # fits beside the first
        run(3, 1, 102, 109.5, 112),  # the machine is full
        run(4, 1, 109.2, 109.6, 111),  # the first has ended, but the third still waits for its nodes
        run(5, 1, 109.3, None, None),  # now there is none left
        run(6, 4, 115, 116, 120),  # the fifth is still there
    ]
    assert [found.number for found in probe.with_room(runs, 4)] == [1, 2, 4]


def test_what_is_shown() -> None:
    mains = machine.occupants("main-3-load-x n[2,4]\nother n3\n")
    assert mains == {"n2": "main-3", "n4": "main-3", "n3": "other"}
    scene = Scene(100, MAIN, view(160, "member", None, "joining", None))
    assert demo.line(scene, {"n2": "main-3"}) == (
        "n1=digits n2=main-3 n3=(digits) n4=- | main jobs: 2 submitted, 2 ended | samples 160"
    )
    console = Console(width=100)
    with console.capture() as shown:
        console.print(demo.picture(scene, {"n2": "main-3"}, 60, "Slurm"))
    for words in ("main-3", "1,234", "1.00 s", "completed"):
        assert words in shown.get()


def test_the_summary_says_whose_the_nodes_were() -> None:
    scenes = [Scene(100, MAIN, view(0, "member", None, None, None))]
    scenes.append(Scene(110, MAIN, view(500, "member", "member", None, None)))
    lines = demo.summary_lines(outcome(scenes, 4, 100, None))
    assert lines == [
        "main jobs: 2 in 10 s: 2 completed",
        "their waits: median 0.75 s, p99 0.99 s, most 1.00 s (2)",
        "  of those that no other main job was in the way of: median 0.75 s, p99 0.99 s, most 1.00 s (2)",
        "nodes used: 54% by main jobs, 79% with trainers",
        "samples trained meanwhile: 500",
    ]


def test_the_summary_says_what_a_study_has_found_and_which_trials_failed() -> None:
    study = {
        "name": "s",
        "id": 1,
        "status": "running",
        "reason": "",
        "trials": 3,
        "counts": {"failed": 1, "running": 2},
        "metric": "accuracy",
        "best": {"number": 2, "value": 0.5},
        "table": [
            {"number": 1, "status": "failed", "reason": "exit code 1"},
            {"number": 2, "status": "running"},
        ],
    }
    summary = summarise([], [], [], [study], [])
    lines = demo.summary_lines(outcome([Scene(100, MAIN, None)], 4, 100, summary))
    assert lines[-3:] == [
        "  s (1): running; 3 trials: 1 failed, 2 running; best accuracy 0.5 in trial 2",
        "    trial 1: exit code 1",
        "daemon, pilots and all workers are gone: yes",
    ]
