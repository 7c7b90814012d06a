"""The times that workers took to start, from the rows of a daemon's events. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from bftrainer.model.reports import Row
from bftrainer.model.trainer import ASSUMED_COSTS

Started = tuple[float, str, float]
"""Start of a worker (Unix seconds), its node, and the time until it was ready (s)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastStart:
    """A worker that was started: ready after `seconds`, or called off after that time."""

    time: float
    node: str
    seconds: float
    ready: bool


class _Starts:
    """Workers that have been started and are not ready yet, and those that are over."""

    def __init__(self) -> None:
        self.found = defaultdict[int, list[PastStart]](list)
        self._waiting: dict[tuple[int, str], tuple[int, float]] = {}  # -> generation, time of the order

    def order(self, trainer: int, generation: int, node: str, time: float) -> None:
        """A worker is started."""
        self._waiting[trainer, node] = (generation, time)

    def ready(self, trainer: int, generation: int, node: str, time: float) -> None:
        """A worker reports that it is ready; ignored if a later one replaced it."""
        if self._waiting.get((trainer, node), (None, 0.0))[0] == generation:
            self._over(trainer, node, time, ready=True)

    def stop(self, trainer: int, node: str, time: float) -> None:
        """A worker is called off, if it is still starting."""
        if (trainer, node) in self._waiting:
            self._over(trainer, node, time, ready=False)

    def leave(self, nodes: Iterable[str], time: float) -> None:
        """Nodes are gone."""
        for trainer, node in [key for key in self._waiting if key[1] in nodes]:
            self._over(trainer, node, time, ready=False)

    def close(self, time: float) -> None:
        """The history ends."""
        for trainer, node in list(self._waiting):
            self._over(trainer, node, time, ready=False)

    def _over(self, trainer: int, node: str, time: float, *, ready: bool) -> None:
        _, begun = self._waiting.pop((trainer, node))
        self.found[trainer].append(PastStart(time=begun, node=node, seconds=time - begun, ready=ready))


def starts(events: Iterable[Row], end: float) -> dict[int, list[PastStart]]:
    """Trainer -> every worker that was started for it before `end`."""
    register = _Starts()
    for event in events:
        time, data = event["time"], event["data"]
        if event["kind"] == "WorkersReady":
            for node in data["nodes"]:
                register.ready(event["trainer"], data["generation"], node, time)
        register.leave(data["left"] if event["kind"] == "NodesChanged" else (), time)
        for action in event["actions"]:
            node = action["data"].get("node", "")
            if action["kind"] == "StopWorker":
                register.stop(action["trainer"], node, time)
            elif action["kind"] == "StartWorker":
                register.order(action["trainer"], action["generation"], node, time)
    register.close(end)
    return register.found


def durations(own: Sequence[PastStart], every: Sequence[PastStart]) -> tuple[Started, ...]:
    """Starts of a trainer's workers, with the time each took, or would have taken.

    One that was called off after L seconds would have taken longer than that: as long as starts that
    took longer than L did on average, this trainer's if there are any, else those of `every` trainer.
    """

    def longer(than: PastStart, among: Sequence[PastStart]) -> list[float]:
        return [start.seconds for start in among if start.ready and start.seconds > than.seconds]

    def duration(start: PastStart) -> float:
        if start.ready:
            return start.seconds
        known = longer(start, own) or longer(start, every)
        return fmean(known) if known else start.seconds + ASSUMED_COSTS.up.init_s

    return tuple((start.time, start.node, duration(start)) for start in own)
