"""A pool that churns around one trainer: nodes come, leave with notice, and are lost with all on them.

In which order, which nodes, and at which steps follows from a seed.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support import framework_story as story
from tests.support.site import Site
from tests.support.waiting import LONG_S

NODES = ("a", "b", "c")
EVENTS = ("worker", "rank 0", "all workers", "node", "notice")
KILLED = 1 + 1 + len(NODES) + 1
"""So many workers end by SIGKILL in one churn."""


class Churn:
    """Trainer `name`: a script that takes `steps` steps, no faster than the file `upto` in its folder says.
    All nodes are there in the beginning and in the end. `is_restarted`: its launcher is torchrun."""

    def __init__(
        self, site: Site, name: str, folder: Path, *, steps: int, seed: int, is_restarted: bool
    ) -> None:
        self.site, self.name, self.folder, self.steps = site, name, folder, steps
        self.rng = random.Random(seed)
        self._is_restarted = is_restarted
        self.upto(0)

    def go_through(self) -> None:
        """Every kind of change, each at a step of its own, and each made good afterwards."""
        events = self.rng.sample(EVENTS, len(EVENTS))
        for number, event in enumerate(events, 1):
            self.reach((number - self.rng.uniform(0.0, 0.5)) / (len(events) + 1))
            self.happens(event)

    def reach(self, part: float) -> None:
        """Wait until this part of the steps is taken, after which the script slows down."""
        moment = int(part * self.steps)
        self.upto(moment)
        self.site.until(lambda: self._step() >= moment, LONG_S, f"step {moment}")

    def happens(self, event: str) -> None:
        """An event, and what it leads to: in the end, the trainer runs on all nodes again."""
        members = self.members()
        if event == "notice":
            self._notice()
        elif event == "node":
            self._lose_and_regain(self.rng.choice(members))
        else:
            one = self.rng.sample(members, 1)
            self.kill(*{"rank 0": members[:1], "all workers": members}.get(event, one))
            self.trains(*NODES)

    def kill(self, *nodes: str) -> None:
        """SIGKILL the workers on these nodes, and return when the daemon has done something about it."""
        before = self._view()["generation"]
        for pid in [self.site.worker_on(node) for node in nodes]:
            os.kill(pid, signal.SIGKILL)
        self.site.until(lambda: self._view()["generation"] > before, LONG_S, f"{nodes} are missed")

    def members(self) -> list[str]:
        """The nodes that train together, in the order of their ranks."""
        found: list[str] = self._view()["members"]
        return found

    def trains(self, *nodes: str) -> None:
        """Wait until the trainer runs on these nodes, and has come further there."""
        self.site.until(lambda: self._are_members(*nodes), LONG_S, f"{self.name} on {nodes}")
        before = self._step()
        self.site.until(lambda: self._step() != before, LONG_S, f"progress on {nodes}")

    def upto(self, step: int) -> None:
        """The script slows down at this step."""
        partial = self.folder / "upto.partial"
        partial.write_text(str(step))
        partial.rename(self.folder / "upto")

    def _lose_and_regain(self, node: str) -> None:
        """A node is taken, with SIGKILL for all that runs there; it comes again."""
        runs = story.runs(self.folder)
        self.site.change(take=[node])
        self.trains(*set(NODES) - {node})
        if self._is_restarted:  # it takes lost steps again: no fault of what follows
            self.site.until(lambda: story.runs(self.folder) != runs, LONG_S, f"a run without {node}")
        with self._told():
            self.site.change(give=[node])
            self.trains(*NODES)

    def _notice(self) -> None:
        """Another trainer gets two of the nodes, whatever they are worth to this one, and leaves again."""
        spec = {"name": "rival", "command": ["sleep", "100000"], "launcher": "torchrun", "weight": 1e6}
        body = {"spec": json.dumps(spec | {"nodes": {"min": 2, "max": 2}}), "name": "r", "base": "/"}
        with self._told():
            self.site.client.call("POST", "trainers", body=body)
            self.site.until(lambda: len(self.members()) == 1, LONG_S, "the rival has two nodes")
            self.trains(*self.members())
        with self._told():
            self.site.client.call("DELETE", "trainers/rival")
            self.trains(*NODES)

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """What happens inside is told in time: no step is taken twice for it."""
        if not self._is_restarted:
            yield
            return
        with story.no_step_twice(self.site, self.folder, is_noted=False):
            yield

    def _view(self) -> dict[str, Any]:
        found = self.site.trainer(self.name)
        if found["ended_at"]:
            why = f"{found['status']} before all had happened: {found['reason']}"
            raise EndedEarlyError(f"{why}\n{self.site.story()}")
        return found

    def _are_members(self, *nodes: str) -> bool:
        """Whether the trainer has these members, and all of them have joined."""
        found = self._view()
        joined = [node for node, phase in found["workers"].items() if phase == "member"]
        return sorted(joined) == sorted(nodes) == sorted(found["members"])

    def _step(self) -> int:
        step: int = self._view()["step"]
        return step


class EndedEarlyError(AssertionError):
    """The trainer has ended before all had happened."""
