"""For scripts on torchrun or Elastic Horovod: where to save, when to stop, and reports of progress.

    job = elastic.attach()
    ... load the newest checkpoint of job.checkpoint_dir ...
    while not job.complete(samples):
        if job.stopping:                   # the node is wanted, or the number of nodes changes
            save(); break
        ... one step ...
        job.progress(step=step, samples=samples, loss=loss)   # rank 0's reports count
    job.done(step=step, samples=samples)

In a script started by hand, all this does nothing, and the script decides how much work there is.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bftrainer.elastic.figures import Figures
from bftrainer.elastic.horovod import place
from bftrainer.elastic.members.channel import AGENT_GONE, Channel, Orders

MANY = 1_000
REPORT_EVERY_S = 0.2
"""Reports of progress are at least this far apart."""


class Job:
    """This process's part in a trainer. Only rank 0's reports (`progress`, `done`, `saved`) count.

    Started by hand (`orders` None), it has no work and no folder, and reports go nowhere.
    """

    def __init__(self, orders: Orders | None) -> None:
        self._orders = orders
        self._channel: Channel | None = None
        self._last: dict[str, Any] = {}
        self._said: dict[str, Any] = {}
        self._metrics = Figures(orders.max_metrics if orders else MANY)
        self._stop = threading.Event()
        if orders is not None:
            self._channel = Channel(orders.fd, lambda _: None, closed=lambda: os._exit(AGENT_GONE))
            self._channel.start()

    @property
    def samples(self) -> int | None:
        """The samples that the spec asks for; None: until the script ends by itself."""
        return self._orders.samples if self._orders else None

    @property
    def checkpoint_dir(self) -> Path | None:
        """The folder of checkpoints, the same for all runs of the trainer; None if started by hand."""
        return Path(self._orders.checkpoint_dir) if self._orders else None

    @property
    def checkpoint_every_s(self) -> float:
        """How often to write a checkpoint, in seconds; infinite if started by hand."""
        return self._orders.checkpoint_every_s if self._orders else float("inf")

    @property
    def stopping(self) -> bool:
        """Whether SIGTERM has come: rank 0 is to save, and all ranks to end, within `stop_grace_s`."""
        return self._stop.is_set()

    def complete(self, samples: int) -> bool:
        """Whether `samples`, counted over all nodes, are all that the spec asks for."""
        return self.samples is not None and samples >= self.samples

    def progress(
        self,
        *,
        step: int,
        samples: int,
        epoch: int = 0,
        size: int | None = None,
        metrics: Mapping[str, float] | None = None,
        **more: float,
    ) -> None:
        """Report, after a step, how far training is, with any figures. To be called on all ranks.

        `step`, `samples` and `epoch` are counted over all nodes. `size` is the number of ranks, by default
        Horovod's or that of WORLD_SIZE. Reports are sent every `REPORT_EVERY_S` at most.
        """
        now, before = time.time(), self._last
        self._metrics.keep({**(metrics or {}), **more})
        self._last = {
            "generation": self._orders.generation if self._orders else 0,
            "size": size or _world_size(),
            "step": step,
            "samples": samples,
            "epoch": epoch,
            "metrics": self._metrics,
            "at": now,
            "world": place.worlds(),
        }
        if self._channel is None or _rank() != 0:
            return
        if any(self._last[name] != before.get(name) for name in ("size", "world")):
            pause_s = now - before["at"] if before else None
            self._channel.send("resumed", **{**self._last, "step": step - 1, "pause_s": pause_s})
            self._said = {}
        if now - self._said.get("at", 0.0) >= REPORT_EVERY_S:
            rate = (samples - self._said["samples"]) / (now - self._said["at"]) if self._said else None
            self._channel.send("progress", **self._last, rate=rate, problem="")
            self._said = self._last

    def done(self, *, step: int, samples: int, epoch: int = 0, **metrics: float) -> None:
        """Report that the work is done and saved; the script has to end soon after."""
        self._say("finished", step=step, samples=samples, epoch=epoch, metrics=metrics)

    def saved(self, *, step: int, samples: int, epoch: int = 0, **metrics: float) -> None:
        """Report the position of the checkpoint from which the next run will go on, before the script
        ends."""
        self._say("left", step=step, samples=samples, epoch=epoch, metrics=metrics)

    def _say(self, kind: str, *, step: int, samples: int, epoch: int, metrics: Mapping[str, float]) -> None:
        self._metrics.keep(metrics)
        if self._channel is not None and _rank() == 0:
            self._channel.send(
                kind,
                generation=self._orders.generation if self._orders else 0,
                size=_world_size(),
                step=step,
                samples=samples,
                epoch=epoch,
                metrics=self._metrics,
                at=self._last.get("at", time.time()),
            )

    def listen_for_sigterm(self) -> None:
        """Have SIGTERM set `stopping` instead of ending the process.

        Raises:
            ValueError: not called in the main thread.
        """
        signal.signal(signal.SIGTERM, lambda *_: self._stop.set())


_job: Job | None = None


def attach() -> Job:
    """The job of this process, always the same one. Call it in the main thread: it takes SIGTERM over.

    With Horovod, call it before `hvd.init()` and as late as possible otherwise: it waits until this worker
    has a place in the membership, while the members train on.

    Raises:
        RuntimeError: called after `hvd.init()`, or Horovod's driver is gone.
        SystemExit: this worker is not needed any more; the code is 0.
    """
    global _job  # noqa: PLW0603  a process has one job
    if _job is None:
        orders = Orders.from_environment()
        if orders is not None and place.is_wanted():
            place.take(orders.address)
        _job = Job(orders)
        _job.listen_for_sigterm()
    return _job


def _rank() -> int:
    horovod = sys.modules.get("horovod.torch")
    return horovod.rank() if horovod and horovod.is_initialized() else int(os.environ.get("RANK", "0"))


def _world_size() -> int:
    horovod = sys.modules.get("horovod.torch")
    return horovod.size() if horovod and horovod.is_initialized() else int(os.environ.get("WORLD_SIZE", "1"))
