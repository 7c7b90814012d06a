"""The ports of a launcher, which only remember what goes through them."""

from __future__ import annotations

from bftrainer.launch.messages import Folders
from bftrainer.model.events import Event
from bftrainer.model.reports import Message, Pause, Progress
from bftrainer.model.trainer import TrainerSpec
from tests.support.messages import order

FOLDERS = Folders(trainer_dir=".bftrainer", store_id="m")


class RememberingPorts:
    """Link and journal of a launcher; `events` is for its events. Every node has an agent that may serve."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, Message]] = []
        self.events: list[Event] = []
        self.pauses: list[Pause] = []
        self.progress: list[Progress] = []
        self.has: dict[str, int] = {}  # node -> its devices

    def serves(self, node: str, spec: TrainerSpec) -> bool:
        return True

    def devices(self, node: str) -> int:
        return self.has.get(node, 0)

    def send(self, node: str, message: Message) -> None:
        self.sent.append((node, order(message)))

    def progressed(self, progress: Progress) -> None:
        self.progress.append(progress)

    def pause(self, pause: Pause) -> None:
        self.pauses.append(pause)
