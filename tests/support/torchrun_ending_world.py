"""`EndingWorld` with the torchrun launcher: a process for every run, which ends when it is told to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bftrainer.launch.launcher import AgentLauncher
from bftrainer.launch.torchrun.launcher import TorchrunLauncher
from bftrainer.model.reports import Message
from tests.support.ending_world import AT, EndingWorld, Worker
from tests.support.messages import report
from tests.support.remembering_ports import FOLDERS


@dataclass(slots=True)
class Process(Worker):
    """A worker's process, warm until it takes part in a run."""

    run: int = 0
    rank: int = 0
    size: int = 0


class TorchrunEndingWorld(EndingWorld):
    """Processes say that the work is done only where the spec names an amount."""

    address = "127.0.0.1"

    def __init__(self, *, until_exit: bool) -> None:
        self._until_exit = until_exit
        super().__init__(until_exit=until_exit)

    def _launcher(self, **options: Any) -> AgentLauncher[Any]:
        return TorchrunLauncher(self, self.events.append, self, FOLDERS, stores=self, **options)

    # stores

    def prepare(self) -> None: ...

    def open(
        self, trainer: int, run: int, opened: Callable[[int], None], lost: Callable[[str], None]
    ) -> None:
        self._todo.append(lambda: opened(4000))

    def used(self, trainer: int, run: int, answered: Callable[[bool | None], None]) -> None:
        answered(True)

    def end(self, trainer: int) -> None: ...

    # processes

    def group(self) -> list[str]:
        running = {
            node: process
            for node, process in self.workers.items()
            if isinstance(process, Process) and process.run and not process.finished
        }
        newest = max((process.run for process in running.values()), default=0)
        there = {node: process for node, process in running.items() if process.run == newest}
        whole = bool(there) and len(there) == next(iter(there.values())).size
        return sorted(there, key=lambda node: there[node].rank) if whole else []

    def break_off(self, node: str) -> None:
        """A process ends by itself, though its work is not done."""
        process = self.workers.get(node)
        if isinstance(process, Process) and process.run and not process.finished:
            self.exit(node, 1)

    def _leave_loop(self, node: str, rank: int) -> None:
        process = self.workers[node]
        assert isinstance(process, Process)
        process.finished = {"generation": process.run, "rank": rank, **AT}
        if not self._until_exit:
            self._said(node, process, "finished", **process.finished)

    def _failed_after_loop(self, worker: Worker) -> None:
        """Nothing is known of it where processes do not say that they have left their loops."""
        if not self._until_exit:
            super()._failed_after_loop(worker)

    def _said(self, node: str, worker: Worker, kind: str, **fields: Any) -> None:
        assert isinstance(worker, Process)
        if kind == "exited" and (self._until_exit or worker.finished is None):
            fields["last"] = {}
            fields["phase"] = "leaving" if worker.is_leaving else "member"
        self.launcher.reported(node, report(kind, started=worker.started, run=worker.run, **fields))

    def _obey(self, node: str, message: Message) -> None:
        process = self.workers.get(node)
        match message["type"]:
            case "start" if node in self.state.pool:
                if process is not None:
                    self._exited(node, process, 0, "")
                new = self.workers[node] = Process(message["generation"])
                self._said(node, new, "ready")
            case "go" if isinstance(process, Process):
                env = message["env"]
                process.run, process.rank, process.size = (
                    message["run"],
                    int(env["RANK"]),
                    int(env["WORLD_SIZE"]),
                )
                if not self._until_exit:
                    self._said(node, process, "attached")
            case "kill" if process is not None:
                self._exited(node, process, -9, message["reason"])
            case "stop" if process is not None:
                process.is_leaving = True
                self._exited(node, process, -15 if process.finished else 0, "")

    def _meet(self) -> bool:
        """A process that still trains fails when another of its run is gone."""
        for node, process in list(self.workers.items()):
            if isinstance(process, Process) and process.run and not process.finished:
                peers = [p for p in self.workers.values() if isinstance(p, Process) and p.run == process.run]
                if len(peers) < process.size:
                    self._exited(node, process, 1, "exit code 1: Connection closed by peer")
                    return True
        return False
