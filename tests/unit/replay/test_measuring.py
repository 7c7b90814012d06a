"""Replays in which the engine learns what its trainers are like."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bftrainer.model.actions import Regroup, StartWorker
from bftrainer.model.events import Measured
from bftrainer.model.trainer import Cost, RescaleCosts, TrainerSpec
from bftrainer.replay import scenario
from bftrainer.replay.evaluate import evaluate
from bftrainer.replay.loop import VirtualClock
from bftrainer.replay.trainers.measuring import MOST_WINDOWS, MeasuringLauncher, hidden
from bftrainer.replay.workload import Submission

SPEC = TrainerSpec(
    name="t",
    command=(),
    n_min=1,
    n_max=4,
    curve=((1, 10.0), (4, 25.0)),
    costs=RescaleCosts(up=Cost(stall_s=3.0, init_s=7.0), down=Cost(stall_s=1.0)),
    curves=(("fat", ((1, 90.0),)), ("thin", ())),
)


class Bench:
    """A launcher with one trainer, and the measurements that it has announced."""

    def __init__(self, noise: float = 0.0) -> None:
        self.measured: list[Measured] = []
        self.clock = VirtualClock(0.0)
        self.launcher = MeasuringLauncher(
            lambda event: self.measured.append(event) if isinstance(event, Measured) else None,
            self.clock,
            submissions=[Submission(0.0, SPEC)],
            noise=noise,
            seed=1,
        )
        (known,) = hidden([Submission(0.0, SPEC)])
        self.launcher.add(1, known.spec)

    def members(self, generation: int, now: float, *nodes: str) -> None:
        self.clock.time = now
        run = self.launcher.trainers[1]
        new = [node for node in nodes if node not in run.members]
        for node in new:
            self.launcher.perform((StartWorker(trainer=1, generation=generation, node=node),))
        self.launcher.perform((Regroup(trainer=1, generation=generation, members=nodes),))

    def speeds(self) -> list[tuple[float, tuple[int, float] | None]]:
        return [(event.time, event.point) for event in self.measured if event.point is not None]


def test_nothing_is_known_but_where_a_trainer_cannot_run() -> None:
    (found,) = hidden([Submission(5.0, SPEC, "model")])
    spec = found.spec
    assert (spec.curve, spec.costs, spec.curves) == (None, None, (("thin", ()),))
    assert (found.time, spec.n_max, spec.command) == (5.0, 4, ("model",))


def test_a_window_begins_after_the_stall_and_is_followed_by_longer_ones() -> None:
    bench = Bench()
    bench.members(1, 100.0, "a")
    assert bench.speeds() == [(105.0, (1, 10.0))]  # a stall of 3 s, and 2 s
    assert [event.up for event in bench.measured if event.point is None] == []  # no member was there before
    for at in range(1, MOST_WINDOWS + 3):
        if len(bench.measured) < at:
            break
        assert bench.launcher.measurement(bench.measured[at - 1]) is bench.measured[at - 1]
    assert [time for time, _ in bench.speeds()] == [105.0 + 10 * i for i in range(MOST_WINDOWS)]


def test_survivors_tell_what_a_rescale_cost() -> None:
    bench = Bench()
    bench.members(1, 0.0, "a")
    bench.members(2, 10.0, "a", "b")
    bench.members(3, 20.0, "b")
    costs = [(event.up, event.down) for event in bench.measured if event.point is None]
    assert costs == [(Cost(stall_s=3.0, init_s=7.0), None), (None, Cost(stall_s=1.0))]


def test_a_window_that_a_change_of_members_broke_says_nothing() -> None:
    bench = Bench()
    bench.members(1, 0.0, "a", "b")
    (first,) = bench.measured
    bench.clock.time = 1.0
    bench.launcher.lose(frozenset("b"))
    assert bench.launcher.measurement(first) is None  # its nodes are gone, and nothing was published yet
    bench.members(2, 1.0, "a")
    assert bench.launcher.measurement(first) is None
    bench.clock.time = 3.0
    bench.launcher.forget(1)
    assert bench.launcher.measurement(bench.measured[-1]) is None


def test_noise_spreads_what_is_measured_and_a_seed_repeats_it() -> None:
    def speed(noise: float) -> float:
        bench = Bench(noise)
        bench.members(1, 0.0, "a")
        ((_, point),) = bench.speeds()
        assert point is not None
        return point[1]

    assert speed(0.1) == speed(0.1) != 10.0
    assert speed(0.0) == 10.0


# --- how near to what is known -------------------------------------------------------------------

HOUR = 3600.0


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Any]:
    """Six hours of twelve nodes that come and go, and trainers of two models."""
    rows = ["idle_start,idle_end,node"]
    for i in range(12):
        at = 200.0 * i
        while at < 6 * HOUR:
            stay = 1200.0 + 700.0 * ((i * 7 + int(at)) % 5)
            rows.append(f"{at},{min(at + stay, 6 * HOUR)},n{i:02}")
            at += stay + 300.0 + 120.0 * (i % 4)
    (tmp_path / "log.csv").write_text("\n".join(rows) + "\n")
    jobs = ["job,Tcup,Tcdw,Jmin,Jmax,Pmax,Tsub,model"]
    jobs += [f"t{i:02},10,5,1,8,400000,1970-01-01 00:00:00,{'good' if i % 2 else 'bad'}" for i in range(40)]
    (tmp_path / "jobs.csv").write_text("\n".join(jobs) + "\n")
    points = [(n, 20.0 * n, 60.0 * n / (1 + 0.5 * (n - 1))) for n in (1, 2, 4, 8)]
    curves = ["model,nodes,images_per_s"]
    curves += [f"good,{n},{good}" for n, good, _ in points] + [f"bad,{n},{bad}" for n, _, bad in points]
    (tmp_path / "curves.csv").write_text("\n".join(curves) + "\n")
    named = {name: tmp_path / f"{file}.csv" for name, file in [("log", "log"), ("workload", "jobs")]}
    return {**named, "curves": tmp_path / "curves.csv", "max_parallel": 4, "allocator": "knapsack"}


def samples(what: dict[str, Any]) -> float:
    return float(str(evaluate(scenario.of(what)).figures["samples"]))


@pytest.mark.parametrize("more", [{}, {"noise": 0.1, "seed": 3}, {"profile_sizes": 3}])
def test_with_no_knowledge_nearly_as_much_is_processed(files: dict[str, Any], more: dict[str, Any]) -> None:
    learnt = samples({**files, "knowledge": "none", **more})
    assert learnt >= 0.97 * samples(files)
    assert learnt == samples({**files, "knowledge": "none", **more})
