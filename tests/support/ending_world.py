"""The real engine and the real native launcher with workers that exist in memory only: how a trainer ends.

Workers do what scripts do: they get ready, meet, train, leave their loops together when the work is done or
alone by an error, run what comes after the loop, and end with any exit code. Nodes come and go at any moment.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bftrainer.engine.state import State
from bftrainer.launch.deadlines import TimeLimits
from bftrainer.launch.launcher import AgentLauncher
from bftrainer.launch.native.launcher import NativeLauncher
from bftrainer.model.actions import Ended
from bftrainer.model.events import Event, NodesChanged, TrainerSubmitted
from bftrainer.model.policy import EngineSettings
from bftrainer.model.reports import Message
from tests.support.engine_world import carried_out, make_spec
from tests.support.messages import report
from tests.support.remembering_ports import FOLDERS, RememberingPorts
from tests.support.timers import Timers

AT = {"step": 10, "samples": 1000, "epoch": 0, "metrics": {}}


@dataclass(slots=True)
class Worker:
    """A worker's process. `told` is the last membership that it has heard of."""

    started: int
    told: Message | None = None
    generation: int = 0  # that it has joined
    is_leaving: bool = False
    finished: Message | None = None  # what it said when it left its loop
    broke: int = 0  # the last generation that it said was broken


class EndingWorld(RememberingPorts):
    """Trainer 1 on the nodes that there are. `until_exit`: its spec names no amount of work."""

    def __init__(self, *, until_exit: bool) -> None:
        super().__init__()
        self.timers = Timers()
        limits = TimeLimits(progress_s=7200.0, start_s=1800.0, later=self.timers.later, now=self.timers.now)
        self.launcher = self._launcher(grace_s=5.0, limits=limits, clock=self.timers.now)
        self.state = State(settings=EngineSettings(max_failures=1000))
        self.workers: dict[str, Worker] = {}
        self.ended: Ended | None = None
        self.ended_well = False  # a worker that was rank 0 has ended with exit code 0 after its loop
        self.ended_in = -1  # the generation in which that had trained
        self.failures: set[int] = set()  # generations that others had trained in whose scripts failed later
        self._todo: deque[Callable[[], None]] = deque()
        spec = make_spec(n_max=4, samples=None if until_exit else 1000)
        self.launcher.add(1, spec)
        self.take(TrainerSubmitted(time=0.0, trainer=1, spec=spec))

    def _launcher(self, **options: Any) -> AgentLauncher[Any]:
        return NativeLauncher(self, self.events.append, self, FOLDERS, **options)

    # what happens

    def take(self, event: Event) -> None:
        """The engine takes an event, and the launcher does what follows."""
        found = carried_out(self.state, event, self.launcher)
        self.state, self.ended = found.state, found.ended or self.ended

    def join(self, node: str) -> None:
        if node not in self.state.pool:
            self.take(NodesChanged(time=self.timers.now(), joined=frozenset({node})))
            self.launcher.agent_up(node, [], {1})
        self.run()

    def leave(self, node: str, *, noticed_first: bool) -> None:
        """A node is gone with all on it; a poll shows it before its agent's connection breaks, or after."""
        gone = NodesChanged(time=self.timers.now(), left=frozenset({node}))
        self.workers.pop(node, None)
        if noticed_first:
            self.take(gone)
            self.launcher.agent_down(node)
        else:
            self.launcher.agent_down(node)
            self.take(gone)
        self.run()

    def vacate(self, node: str) -> None:
        """A node is given back: its worker is told to leave first."""
        gone = frozenset({node})
        self.take(NodesChanged(time=self.timers.now(), left=gone, vacated=gone))
        self.run()

    def finish(self) -> None:
        """The members leave their loops together, as the work is done."""
        members = self.group()
        for rank, node in enumerate(members):
            self._leave_loop(node, rank)
        self.run()

    def break_off(self, node: str) -> None:
        """A worker leaves its loop alone, by a break or an error."""
        worker = self.workers.get(node)
        if worker is not None and worker.generation and worker.finished is None and worker.told:
            self._leave_loop(node, worker.told["members"].index(node))
        self.run()

    def exit(self, node: str, code: int) -> None:
        """A worker's process ends by itself."""
        worker = self.workers.get(node)
        if worker is not None:
            if worker.finished and not worker.finished["rank"] and code == 0:
                self.ended_well, self.ended_in = True, worker.finished["generation"]
            elif worker.finished and worker.finished["rank"] and code > 0:
                self._failed_after_loop(worker)
            before = self.launcher.known[1].succeeded
            self._exited(node, worker, code, "")
            if not (before or worker.finished) and self.launcher.known[1].succeeded:
                self.ended_in = worker.generation  # it ended well without a word that its work is done
        self.run()

    def _failed_after_loop(self, worker: Worker) -> None:
        assert worker.finished is not None
        self.failures.add(worker.finished["generation"])

    # what there is

    def group(self) -> list[str]:
        """The nodes that train together, in the order of their ranks; none where one of them is missing."""
        for worker in self.workers.values():
            told = worker.told
            if told and worker.generation == told["generation"] and worker.finished is None:
                there = [self.workers.get(node) for node in told["members"]]
                if all(w and w.generation == worker.generation and not w.finished for w in there):
                    return list(told["members"])
        return []

    def run(self) -> None:
        """Let everybody do what is to be done now."""
        for _ in range(10_000):
            if self._todo:
                self._todo.popleft()()
            elif due := [event for event in self.events if event.time <= self.timers.now()]:
                first = min(due, key=lambda event: (event.time, event.priority))
                self.events.remove(first)
                self.take(first)
            elif not self._meet():
                return
        raise AssertionError("it never comes to rest")

    # workers

    def send(self, node: str, message: Message) -> None:
        super().send(node, message)
        self._todo.append(lambda: self._obey(node, message))

    def _said(self, node: str, worker: Worker, kind: str, **fields: Any) -> None:
        self.launcher.reported(node, report(kind, started=worker.started, **fields))

    def _obey(self, node: str, message: Message) -> None:
        worker = self.workers.get(node)
        match message["type"]:
            case "start" if node in self.state.pool:
                if worker is not None:
                    self._exited(node, worker, 0, "")
                new = self.workers[node] = Worker(message["generation"])
                self._said(node, new, "ready")
            case "kill" if worker is not None:
                self._exited(node, worker, -9, message["reason"])
            case "stop" if worker is not None:
                self._leave(node, worker)
            case "regroup" if worker is not None:
                worker.told = message
                if node in message["leaving"] or not message["members"]:
                    self._leave(node, worker)

    def _leave(self, node: str, worker: Worker) -> None:
        """It leaves its loop; after that it is killed at the end of its grace time."""
        worker.is_leaving = True
        if worker.finished is None:
            self._exited(node, worker, 0, "", last={"type": "left", "generation": worker.generation, **AT})
        else:
            self._exited(node, worker, -9, "")

    def _leave_loop(self, node: str, rank: int) -> None:
        worker = self.workers[node]
        worker.finished = {"generation": worker.generation, "rank": rank, **AT}
        self._said(node, worker, "finished", **worker.finished)

    def _exited(self, node: str, worker: Worker, code: int, reason: str, last: Message | None = None) -> None:
        if self.workers.get(node) is worker:
            del self.workers[node]
        if worker.finished:
            last = {"type": "finished", **worker.finished}
        phase = "leaving" if worker.is_leaving else "finished" if worker.finished else "member"
        self._said(node, worker, "exited", code=code, phase=phase, reason=reason, last=last or {})

    def _meet(self) -> bool:
        """Members that are all there join; one that misses another says so. Whether anything was said."""
        for node, worker in list(self.workers.items()):
            told = worker.told
            if told is None or worker.finished or node not in told["members"]:
                continue
            here, generation = told["members"], told["generation"]
            others = [self.workers.get(other) for other in here]
            if worker.generation < generation and all(self._comes(w, generation) for w in others):
                survivor, worker.generation = bool(worker.generation), generation
                about = {"step": 1, "size": len(here), "survivor": survivor, "pause_s": 0.1}
                self._said(node, worker, "joined", generation=generation, **about)
                return True
            missed = any(w is None or w.finished for w in others)
            if missed and worker.broke < generation:
                worker.broke = generation
                self._said(node, worker, "broken", generation=generation, reason="a peer is gone")
                return True
        return False

    @staticmethod
    def _comes(worker: Worker | None, generation: int) -> bool:
        return bool(
            worker and not worker.finished and worker.told and worker.told["generation"] == generation
        )
