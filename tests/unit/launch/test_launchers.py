"""All launchers as one: a trainer is known from `add` until it has ended and its last worker has gone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bftrainer.launch.launchers import Launchers
from bftrainer.model.actions import Regroup, StartWorker, StopWorker
from bftrainer.model.events import Event
from bftrainer.model.reports import Message, Pause, Progress
from bftrainer.model.trainer import TrainerSpec
from tests.support.messages import passed_on


class Site:
    """A link to agents and a journal that only remember."""

    def __init__(self, folder: Path) -> None:
        self.sent: list[tuple[str, Message]] = []
        self.events: list[Event] = []
        self.progress: list[Progress] = []
        self.launchers = Launchers.over(
            self,
            self.events.append,
            self,
            nodes_see_us_at="127.0.0.1",
            state_dir=folder,
            orphan_s=1.0,
            max_helper_memory_mb=64,
            trainer_dir=".bftrainer",
            store_id="m",
            grace_s=5.0,
        )

    def serves(self, node: str, spec: TrainerSpec) -> bool:
        return True

    def devices(self, node: str) -> int:
        return 0

    def send(self, node: str, message: Message) -> None:
        self.sent.append((node, message))

    def progressed(self, progress: Progress) -> None:
        self.progress.append(progress)

    def pause(self, pause: Pause) -> None:
        pass

    def add(self, trainer: int, launcher: str = "native") -> None:
        spec = TrainerSpec(
            name=f"t{trainer}", command=("a",), n_min=1, n_max=4, samples=1000, launcher=launcher
        )
        self.launchers.add(trainer, spec)

    def start(self, trainer: int, generation: int, node: str) -> None:
        self.launchers.perform([StartWorker(trainer=trainer, generation=generation, node=node)])

    def said(self, trainer: int, node: str, kind: str, started: int = 1, **fields: Any) -> None:
        self.launchers.said(node, passed_on(kind, trainer=trainer, started=started, **fields))

    def known(self) -> set[int]:
        return {trainer for own in self.launchers._by_name.values() for trainer in own.known._trainers}


EXIT: Message = {"code": 0, "phase": "leaving", "reason": "", "last": {}}
LEFT: Message = {"generation": 2, "size": 1, "step": 3, "samples": 30, "epoch": 0, "metrics": {}}


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_a_trainer_that_ended_is_forgotten_when_its_last_worker_has_gone(site: Site) -> None:
    site.add(1)
    site.start(1, 1, "n")
    site.launchers.perform([Regroup(trainer=1, generation=2, members=("n",))])
    site.launchers.perform([Regroup(trainer=1, generation=3, members=(), leaving=("n",))])
    site.launchers.forget(1)
    assert site.launchers.workers(1) == {"n": "leaving"}, "until then it is listed"
    site.said(1, "n", "left", **LEFT)
    site.said(1, "n", "exited", **{**EXIT, "last": {"type": "left", **LEFT}})
    assert site.progress[-1].samples == 30, "until then it is heard"
    assert site.known() == set()


def test_a_trainer_that_ended_without_workers_is_forgotten_at_once(site: Site) -> None:
    for trainer, launcher in enumerate(("native", "torchrun", "horovod"), 1):
        own = site.launchers._by_name[launcher]
        spec = TrainerSpec(name=launcher, command=("a",), n_min=1, n_max=1)
        own.known.add(own.trainer_type(id=trainer, spec=spec))
        site.launchers.forget(trainer)
    assert site.known() == set()
    site.launchers.forget(7)  # never known: nothing to do


def test_a_trainer_whose_last_node_is_lost_after_its_end_is_forgotten(site: Site) -> None:
    site.add(1)
    site.add(2)
    site.start(1, 1, "n")
    site.start(2, 1, "m")
    site.launchers.forget(1)
    site.launchers.agent_down("n")
    site.launchers.agent_down("m")
    assert site.known() == {2}, "the other has not ended"


def test_a_worker_that_was_never_sent_keeps_no_trainer_known(site: Site) -> None:
    site.add(1)
    site.serves = lambda node, spec: False  # type: ignore[method-assign]  # no agent has come yet
    site.start(1, 1, "n")
    site.launchers.forget(1)
    assert site.known() == {1}
    site.launchers.perform([StopWorker(trainer=1, generation=2, node="n")])
    assert site.known() == set()


def test_late_messages_of_a_forgotten_trainer_are_dropped_and_its_workers_stopped(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    site.add(1)
    site.start(1, 1, "n")
    site.launchers.forget(1)
    site.launchers.agent_down("n")
    site.sent.clear()
    site.said(1, "n", "ready")
    assert site.events == [] and not caplog.records
    found = {"trainer": 1, "generation": 1, "run": 0, "phase": "member", "joined": 1}
    site.launchers.agent_up("n", [found], {1})
    assert [(node, m["type"], m["trainer"]) for node, m in site.sent] == [("n", "stop", 1)]
    assert site.launchers.workers(1) == {"n": "leaving"}, "it may still write a checkpoint"
    site.said(1, "n", "exited", **EXIT)
    assert site.launchers.workers(1) == {}


def test_the_end_of_a_worker_is_acknowledged_whether_or_not_it_still_matters(site: Site) -> None:
    site.add(1)
    site.start(1, 1, "n")
    site.sent.clear()
    for trainer in (1, 7):
        site.said(trainer, "n", "exited", **EXIT)
        assert ("n", {"type": "heard", "trainer": trainer, "started": 1, "run": 0}) in site.sent
    site.sent.clear()
    site.said(1, "n", "left", **LEFT)
    assert site.sent == []


@pytest.mark.parametrize("waiting", [True, False])
def test_a_worker_that_waits_for_its_pilot_outlives_the_one_before(site: Site, waiting: bool) -> None:
    """The pilot of another user, whose trainer has ended, is ended first."""
    site.add(1)
    there = False
    site.serves = lambda node, spec: there  # type: ignore[method-assign]
    site.start(1, 1, "n")
    site.launchers.agent_down("n", waiting=waiting)
    there = True
    site.launchers.agent_up("n", [], {1})
    started = [(node, message["trainer"]) for node, message in site.sent if message["type"] == "start"]
    assert started == ([] if waiting else [("n", 1)])
