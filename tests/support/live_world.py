"""`LauncherWorld` with a real daemon, real agents and real workers on this machine."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bftrainer.model.trainer import TrainerStatus
from bftrainer.testing.launcher_world import Moment, ShownTrainer
from tests.support.audit import audit
from tests.support.processes import alive, until_ended
from tests.support.site import Site
from tests.support.waiting import LONG_S

NODES = ("a", "b", "c", "d")
WORK = 4_000
STEP_S = 0.4
RESCALE = {"up": {"stall_s": 0.1, "init_s": 1.0}, "down": {"stall_s": 0.1}}


class LiveWorld:
    """The trainer is one of the scripts beside `scripts/watched.py`, run by `launcher`.

    `gated`: its script begins only as a member. Until then a worker is but a fork of its node's warm
    process: that is stopped to hold it at its start. Each node runs `workers` processes; what befalls a
    worker befalls the last of them. `more` is added to its spec.
    """

    def __init__(
        self, launcher: str, script: str, *, keeps_steps: bool, gated: bool, workers: int = 1, **more: object
    ) -> None:
        self._more = more
        self.keeps_steps, self._each = keeps_steps, workers
        self._launcher, self._script, self._gated = launcher, script, gated
        self.site = Site([], poll_s=0.05, t_fwd_s=60)
        self.site.at_will(*NODES)
        if workers > 1:  # one for each device, whose numbers are the node's own
            self.site.environ["SIMULATED_VISIBLE_DEVICES"] = ",".join(str(3 * i + 2) for i in range(workers))
        self._notes = self.site.root / "notes"
        self._notes.mkdir()

    def submit(self) -> None:
        self.site.submit(
            "ours",
            *(self._script, str(self._notes), str(STEP_S)),
            samples=WORK,
            curve=[[1, 100], [4, 400]],
            rescale=RESCALE,
            checkpoint={"every_s": 0.3},
            launcher=self._launcher,
            nodes={"min": 1, "max": 4, "workers": "auto"},
            **self._more,
        )

    def cancel(self) -> None:
        self.site.client.call("DELETE", "trainers/ours")

    def finish(self) -> None:
        (self._notes / "fast").touch()

    def rival(self, size: int) -> None:
        spec = {
            "name": "rival",
            "command": ["sh", "-c", f"until [ -e {self.site.root}/over ]; do sleep 0.05; done"],
            "nodes": {"min": size, "max": size},
            "weight": 1000.0,
            "curve": [[size, 100 * size]],
            "rescale": RESCALE,
        }
        body = {"spec": json.dumps(spec), "name": "rival", "base": str(self.site.root)}
        self.site.client.call("POST", "trainers", body=body)

    def rival_ends(self) -> None:
        (self.site.root / "over").touch()

    def change(self, *, give: Collection[str] = (), take: Collection[str] = ()) -> None:
        self.site.change(give=give, take=take)

    def kill_worker(self, *nodes: str) -> None:
        for node in nodes:
            os.kill(self.site.trains_on(node, self._each)[-1], signal.SIGKILL)

    def kill_agent(self, node: str) -> None:
        """No worker outlives its agent: the kernel kills it, however the daemon learns of the loss."""
        workers = self.site.workers_on(node)
        os.kill(self.site.agent_on(node), signal.SIGKILL)
        until_ended(workers)

    def freeze(self, node: str) -> None:
        os.kill(self.site.trains_on(node, self._each)[-1], signal.SIGSTOP)

    def end_early(self, *nodes: str) -> None:
        before = [pid for node in nodes for pid in self.site.trains_on(node, self._each)]
        for node in nodes:
            self._order("step", node).write_text("end")
        self.until(lambda: not any(map(alive, before)), "the programs have ended")
        for node in nodes:
            self.release(node, "step")

    def kill_daemon(self) -> None:
        self.site.kill_daemon()

    def start_daemon(self) -> None:
        self.site.start()

    def hold(self, node: str, moment: Moment) -> None:
        if moment == "step" or not self._gated:
            self._order(moment, node).write_text("wait")

    def held(self, node: str, moment: Moment) -> bool:
        if moment == "start" and self._gated:
            return self._signal_warm(node, signal.SIGSTOP)
        return self._order(moment, node).exists() and self._is_at(moment, node)

    def release(self, node: str, moment: Moment) -> None:
        if moment == "start" and self._gated:
            self._signal_warm(node, signal.SIGCONT)
        else:
            self._order(moment, node).unlink()

    def until(self, condition: Callable[[], object], what: str, *, at_once: bool = False) -> None:
        self.site.until(condition, LONG_S, what, 0.02 if at_once else None)

    def trainer(self) -> ShownTrainer:
        found = self.site.trainer("ours")
        return ShownTrainer(
            status=TrainerStatus(found["status"]),
            samples=found["samples"],
            work=found["work"],
            members=tuple(found["members"]),
            workers=found["workers"],
            ended=bool(found["ended_at"]),
        )

    def events(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.site.get("events", limit=1000)
        return found

    def pauses(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.site.get("pauses", limit=1000, trainer="ours")
        return found

    def audit(self) -> None:
        audit(self._notes, WORK)

    def stop(self) -> None:
        self.site.stop()

    def processes(self) -> list[int]:
        return self.site.processes()

    def _order(self, moment: str, node: str) -> Path:
        return self._notes / f"{moment}@{node}.order"

    def _is_at(self, moment: str, node: str) -> bool:
        """Whether a living worker of a node has come to a moment."""
        notes = self._notes.glob(f"{moment}@{node}.[0-9]*")
        return any(alive(int(note.suffix[1:])) for note in notes)

    def _signal_warm(self, node: str, sign: signal.Signals) -> bool:
        """Whether there is a warm process on a node to take the signal."""
        found = self.site.warm_on(node)
        if found is not None:
            os.kill(found, sign)
        return found is not None


@contextmanager
def live(
    launcher: str, script: str, *, keeps_steps: bool, gated: bool, workers: int = 1, **more: object
) -> Iterator[LiveWorld]:
    world = LiveWorld(launcher, script, keeps_steps=keeps_steps, gated=gated, workers=workers, **more)
    try:
        world.site.start()
        yield world
    finally:
        world.site.close()
