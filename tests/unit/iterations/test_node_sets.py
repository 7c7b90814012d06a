"""Gandiva's sets of devices: each has a queue, whose jobs take turns."""

from __future__ import annotations

import pytest

from bftrainer.iterations.model import IterationJob, IterationTask, PlanRules, SharedDevices
from bftrainer.replay.iterations.gangs import NodeSets, gang

TASK = IterationTask(0.1, 1.0)


def ends(jobs: list[IterationJob], devices: int) -> list[float]:
    """When the jobs end (s), if a move takes no time."""
    replayed = gang(jobs, SharedDevices(devices, 16.0), PlanRules(gamma_s_per_gb=0.0), NodeSets())
    return [float(end) for end in replayed.ended]


def job(workers: int, minutes: int, arrival: float = 0.0) -> IterationJob:
    return IterationJob(arrival=arrival, tasks=(TASK,) * workers, iterations=600 * minutes, model_gb=0.1)


def test_the_jobs_of_one_set_take_turns_and_others_go_on() -> None:
    """The third job shares the first one's set until the second ends, and then has a device of its own."""
    assert ends([job(1, 3), job(1, 3), job(1, 3)], 2) == pytest.approx([240, 180, 300])


def test_a_size_without_a_set_waits_until_devices_are_free() -> None:
    assert ends([*(job(1, 10) for _ in range(4)), job(2, 1, 30.0)], 4) == pytest.approx([600] * 4 + [660])


def test_a_size_gives_up_a_set_when_others_ask_for_more() -> None:
    """Two jobs of two workers have four of six devices; with six more of one worker these are too many."""
    jobs = [job(2, 2), job(2, 2), job(1, 2), job(1, 2), *(job(1, 2, 30.0) for _ in range(6))]
    found = ends(jobs, 6)
    assert sorted(found[:2]) == pytest.approx([180, 210]), "they take turns on one set"
    assert max(found) < 330, "no device of the other set stays idle"
