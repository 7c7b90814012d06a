"""For scripts on torchrun or Elastic Horovod: where to save, when to stop, and reports of progress.

    job = elastic.attach()
    state = job.load()                     # what was saved last; None at the start
    while not job.complete(samples):
        ... one step ...
        job.progress(step=step, samples=samples, loss=loss)     # rank 0's reports count; of=: samples in all
        stop = job.should_stop()           # the same on all ranks: a node is wanted, or nodes join
        if job.should_save():
            job.save({"model": model.state_dict(), ...}, step=step, samples=samples)
        if stop:
            break
    else:
        job.done(step=step, samples=samples)

In a script started by hand, the script decides how much work there is, and where checkpoints are
(`attach(folder)`); reports go nowhere.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bftrainer.elastic.attach.checkpoints import JobState
from bftrainer.elastic.attach.collectives import apart, counted, highest
from bftrainer.elastic.horovod import place
from bftrainer.elastic.process import warnings
from bftrainer.elastic.process.channel import AGENT_GONE, Channel, Orders
from bftrainer.elastic.process.identity import Identity
from bftrainer.elastic.process.metrics import CountSpeed, Figures, counts, whole_training
from bftrainer.elastic.process.refusal import tell_of_refusals
from bftrainer.elastic.process.warnings import note
from bftrainer.elastic.recorded import watcher
from bftrainer.files import make_checkpoint_folder
from bftrainer.messages.ranks import WEIGHTS_APART

if TYPE_CHECKING:
    import torch

    from bftrainer.elastic.frameworks.replica_check import SameWeights

MANY = 1_000
REPORT_EVERY_S = 0.2
"""Reports of progress are at least this far apart."""


class Ranks(Identity):
    """The ranks of this run, those that its trainer may have, and what its spec asks for."""

    def __init__(self, orders: Orders | None) -> None:
        self._orders = orders

    @property
    def nodes(self) -> tuple[int, int]:
        """The fewest and the most nodes that the spec allows; started by hand, the number of ranks."""
        if self._orders is not None and self._orders.n_max:
            return self._orders.n_min, self._orders.n_max
        return _world_size(), _world_size()

    @property
    def sizes(self) -> Sequence[int]:
        """The numbers of ranks that the spec allows, ascending; started by hand, the number of ranks. These
        are the numbers of nodes, unless each runs several processes."""
        fewest, most = self.nodes
        orders, each = self._orders, self.local_size
        if orders is not None and orders.sizes:
            return tuple(size * each for size in orders.sizes)
        step = orders.multiple_of if orders is not None else 1
        return range(fewest * each, most * each + 1, step * each)

    @property
    def trainer(self) -> str:
        """Identity of this trainer, over all its starts; empty if started by hand."""
        return self._orders.folder if self._orders is not None else ""

    @property
    def rank(self) -> int:
        """The number of this process, from 0."""
        return _rank()

    @property
    def size(self) -> int:
        """The number of processes in this run."""
        return _world_size()

    @property
    def samples(self) -> int | None:
        """The samples that the spec asks for; None: until the script ends by itself."""
        return self._orders.samples if self._orders else None

    @property
    def checkpoint_every_s(self) -> float:
        """Seconds between checkpoints; infinite if started by hand."""
        return self._orders.checkpoint_every_s if self._orders else float("inf")

    def complete(self, samples: int) -> bool:
        """True if `samples`, counted over all nodes, are all that the spec asks for."""
        return self.samples is not None and samples >= self.samples


class Job(Ranks):
    """This process's part in a trainer. Rank 0's reports (`progress`, `done`, `saved`) count.

    Started by hand (`orders` None), it has no work, reports go nowhere, and `folder` is for checkpoints.
    """

    def __init__(self, orders: Orders | None, folder: Path | None = None) -> None:
        super().__init__(orders)
        self._folder = Path(orders.checkpoint_dir) if orders else folder
        self._channel: Channel | None = None
        self._last: dict[str, Any] = {}
        self._said: dict[str, Any] = {}
        self._speed = CountSpeed()
        self._of: int | None = None
        self._metrics = Figures(orders.max_metrics if orders else MANY)
        self._stop = threading.Event()
        self._agreed_stop = self._agreed_save = self._are_ranks_known = False
        self._same: dict[int, SameWeights] = {}
        self._state = JobState(
            self._folder, orders.generation if orders else 0, orders.folder if orders else ""
        )
        if orders is not None:
            make_checkpoint_folder(orders.checkpoint_dir, orders.folder)  # scripts write there themselves
            self._channel = Channel(orders.fd, lambda _: None, closed=lambda: os._exit(AGENT_GONE))
            self._channel.start()
            self._channel.send("attached")
            tell_of_refusals(self._fail)
            _checks("watch")
            _accumulates(asked=False)
            atexit.register(self._say_last)

    @property
    def checkpoint_dir(self) -> Path | None:
        """The folder of checkpoints, the same for all runs of the trainer; by hand, that of `attach`."""
        return self._folder

    @property
    def stopping(self) -> bool:
        """True if SIGTERM has come to this process: rank 0 must save, and all ranks must end, within
        `stop_grace_s`. Not every rank need get the signal; `should_stop` says the same on all of them."""
        return self._stop.is_set()

    def should_stop(self, *, saves: bool = False) -> bool:
        """True if all ranks must save and end now, as one of them was told to stop.

        Call it on all ranks after the same step: they exchange three integers. The answer is the same on all.
        Horovod's own reset stops the others; there it is `stopping`. Where gradients of several batches
        add up, it waits for the optimizer's step, for 64 batches at most. `saves`: a checkpoint is due now.

        Raises:
            RuntimeError: a rank is lost, or as `check_ranks`.
        """
        self.check_ranks()
        due = saves or self.stopping or self._state.age_s >= self.checkpoint_every_s
        stop, save, wait = highest((self.stopping, due, _accumulates(asked=due)))
        self._agreed_stop, self._agreed_save = stop > wait, save > wait
        return self._agreed_stop

    def should_save(self) -> bool:
        """True if a checkpoint is due, or all must stop: the same on all ranks, as of the last
        `should_stop`."""
        return self._agreed_save

    def save(self, state: Mapping[str, Any], *, step: int, samples: int, epoch: int | None = None) -> bool:
        """Have rank 0 write a checkpoint that `load` gives back; on other ranks nothing happens.

        A process that is killed while it writes leaves the checkpoint before. The newest two are kept. Where
        all must stop, this reports the position from which the next run will go on, as `saved` does.

        Args:
            state: tensors, numbers, texts, and lists and dictionaries of these, such as `state_dict()` gives.
            step: steps taken.
            samples: those taken, counted over all nodes.
            epoch: the number of the present epoch; by default from `progress`.

        Returns:
            Whether it is written. If not, for example on a full disk, standard error says why.

        Raises:
            CheckpointError: the state cannot be read back, as it holds other objects.
        """
        self._state.saved_now()  # on all ranks: if it is due on one, all save
        epoch = self._epoch(epoch)
        at = counts(step=step, samples=samples, epoch=epoch)
        written = _rank() == 0 and self._state.save(state, **at)
        self._agreed_save = False
        if written and self._agreed_stop:
            self.saved(step=step, samples=samples, epoch=epoch)
        return written

    def checkpointed(self) -> None:
        """Note that other means than `save` wrote a checkpoint: the next is due in `checkpoint_every_s`."""
        self._state.saved_now()
        self._agreed_save = False

    def load(self) -> dict[str, Any] | None:
        """The state that was saved last, on the CPU; None if there is none. To be called on all ranks, before
        the first `save`.

        Raises:
            CheckpointError: there are checkpoints, but none can be read.
        """
        found = self._state.load()
        if found is not None and _rank() == 0:
            note(f"resumed from step {self._state.resumed}, of a checkpoint in {self._folder}")
        return found

    def check_ranks(self, **said: int) -> None:
        """Have the trainer fail if torch.distributed, accelerate or one of `said` counts other ranks.

        Each process would train by itself, and would do so at every start.

        Raises:
            RuntimeError: who does, and what to do.
        """
        if self._are_ranks_known or self._orders is None or "WORLD_SIZE" not in os.environ:
            return
        _checks("watch")
        if told := apart(_world_size(), {**counted(), **said}):
            self._fail(told)
            raise RuntimeError(told)
        self._are_ranks_known = True

    def compare(self, *models: torch.nn.Module) -> None:
        """Have the script fail where the ranks do not have the same weights, and buffers, in these models.

        Call it on all ranks after each step, or wherever they must be the same, such as after an average. It
        compares the first few times, and then every hundredth. Without models, ranks may differ.

        By default ranks that seem to train apart are warned of, by what happens to their weights.

        Raises:
            RefusedError: weights differ: which one, its values, and what to do.
        """
        from bftrainer.elastic.checks import replicas  # noqa: PLC0415  with torch, as here
        from bftrainer.elastic.frameworks.replica_check import SameWeights  # noqa: PLC0415

        replicas.end()
        for number, model in enumerate(models):
            self._same.setdefault(number, SameWeights(WEIGHTS_APART)).after_step(model)

    def _fail(self, reason: str) -> None:
        """Have the trainer fail at once: another start would come to the same."""
        if self._channel is not None and self._orders is not None:
            self._channel.send("failed", generation=self._orders.generation, reason=reason)

    def progress(
        self,
        *,
        step: int,
        samples: int,
        epoch: int = 0,
        of: int | None = None,
        size: int | None = None,
        metrics: Mapping[str, float] | None = None,
        **more: float,
    ) -> None:
        """Report, after a step, how far training is, with any figures. To be called on all ranks.

        `step`, `samples` and `epoch` are counted over all nodes. `of` are the samples of the whole training,
        if the script knows them, for `bftrainer list`; they end nothing. `size` is the number of ranks, by
        default Horovod's or that of WORLD_SIZE. Reports are sent every `REPORT_EVERY_S` at most.

        Raises:
            ValueError: `of` is no whole number from 1 on, or another one is no count.
            RuntimeError: as `check_ranks`.
        """
        self.check_ranks()
        now, before = time.time(), self._last
        self._of = whole_training(of)
        self._metrics.keep(given := {**(metrics or {}), **more})
        watcher.watching.said("moved", {"step": step, "metrics": given})
        self._last = {
            "generation": self._orders.generation if self._orders else 0,
            "size": _nodes(size or _world_size(), self.local_size),
            **counts(step=step, samples=samples, epoch=epoch),
            "metrics": self._metrics,
            "of": self._of,
            "warned": warnings.last(),
            "at": now,
            "world": place.worlds(),
        }
        if self._channel is None or _rank() != 0:
            return
        if any(self._last[name] != before.get(name) for name in ("size", "world")):
            pause_s = now - before["at"] if before else None
            begun = {"step": max(0, self._last["step"] - 1), "pause_s": pause_s}
            self._channel.send("resumed", **{**self._last, **begun})
            self._said, self._speed = {}, CountSpeed()
        if now - self._said.get("at", 0.0) >= REPORT_EVERY_S:
            rate = self._speed.rate(self._last["step"], self._last["samples"], now)
            self._channel.send("progress", **self._last, rate=rate, problem=self._state.error)
            self._said = self._last

    def report(self, metrics: Mapping[str, float]) -> None:
        """Report figures now, such as accuracy, with the last `progress`; before the first, they wait for it.
        Rank 0's count."""
        watcher.watching.said("figures", {"metrics": metrics, "now": True})
        self._metrics.keep(metrics)
        if self._channel is not None and _rank() == 0 and self._last:
            self._channel.send("metrics", **self._last)

    def done(self, *, step: int, samples: int, epoch: int | None = None, **metrics: float) -> None:
        """Report that the work is done and saved; the script must end soon after. Must be called on all
        ranks: where one fails after that, the trainer has failed. Without an `epoch`, it is the last one that
        `progress` has told."""
        self._say("finished", step=step, samples=samples, epoch=epoch, metrics=metrics)

    def saved(self, *, step: int, samples: int, epoch: int | None = None, **metrics: float) -> None:
        """Report the position of the checkpoint from which the next run will go on, before its end."""
        self._say("left", step=step, samples=samples, epoch=epoch, metrics=metrics)

    def _say_last(self) -> None:
        """Report the last step of a process that ends, unless it has reported its save: how far it came
        counts where it fails."""
        _checks("look")
        last = {**self._last, "warned": warnings.last()}
        has_said = all(self._said.get(name) == last.get(name) for name in ("step", "warned"))
        if self._channel is not None and _rank() == 0 and self._last and not has_said:
            self._channel.send("progress", **last, rate=None, problem=self._state.error)

    def _epoch(self, given: int | None) -> int:
        return self._last.get("epoch", 0) if given is None else given

    def _say(
        self, kind: str, *, step: int, samples: int, epoch: int | None, metrics: Mapping[str, float]
    ) -> None:
        self._metrics.keep(metrics)
        _checks("look")
        self._said = self._last
        if self._channel is not None and (_rank() == 0 or kind == "finished"):
            self._channel.send(
                kind,
                rank=_rank(),
                generation=self._orders.generation if self._orders else 0,
                size=_nodes(_world_size(), self.local_size),
                **counts(step=step, samples=samples, epoch=self._epoch(epoch)),
                metrics=self._metrics,
                of=self._of,
                warned=warnings.last(),
                at=self._last.get("at", time.time()),
            )

    def listen_for_sigterm(self) -> None:
        """Have SIGTERM set `stopping` instead of ending the process.

        Raises:
            ValueError: not called in the main thread.
        """
        signal.signal(signal.SIGTERM, lambda *_: self._stop.set())


_job: Job | None = None


def attach(folder: str | Path | None = None) -> Job:
    """The job of this process, always the same one. Call it in the main thread: it takes SIGTERM over.

    `folder` is where a script that is started by hand has its checkpoints; None for none. With Horovod, call
    this before `hvd.init()` and as late as possible otherwise: it waits until this worker has a place in the
    membership, while the members train on.

    Raises:
        RuntimeError: called after `hvd.init()`, or Horovod's driver is gone; or another program has started
            this process, not bftrainer.
        SystemExit: this worker is not needed any more; the code is 0.
    """
    global _job  # noqa: PLW0603  a process has one job
    if _job is None:
        orders = Orders.from_environment()
        if orders is not None:
            orders.expect_signals()
        if orders is not None and place.is_wanted():
            place.take(orders.address, orders.local_rank)
        _job = Job(orders, Path(folder) if folder else None)
        _job.listen_for_sigterm()
    return _job


def _checks(what: str) -> None:
    """Watch the ranks' weights, or have a last look at them; in a script without PyTorch there are none."""
    if "torch" in sys.modules:
        from bftrainer.elastic.checks import replicas  # noqa: PLC0415

        getattr(replicas, what)()


def _accumulates(*, asked: bool) -> bool:
    """If `asked`, whether gradients wait for a further batch. In any case another one begins now."""
    if "torch" not in sys.modules:
        return False
    from bftrainer.elastic.frameworks.pending_gradients import windows  # noqa: PLC0415

    found = windows()
    is_open = asked and found.are_open()
    found.batch_begins()
    return is_open


def _rank() -> int:
    horovod = sys.modules.get("horovod.torch")
    return horovod.rank() if horovod and horovod.is_initialized() else int(os.environ.get("RANK", "0"))


def _world_size() -> int:
    horovod = sys.modules.get("horovod.torch")
    return horovod.size() if horovod and horovod.is_initialized() else int(os.environ.get("WORLD_SIZE", "1"))


def _nodes(ranks: int, each: int) -> int:
    """Number of nodes with `ranks` ranks, `each` on this one: the daemon counts nodes."""
    even = -(-ranks // each)
    if ranks != _world_size():
        return even
    horovod = sys.modules.get("horovod.torch")
    if horovod and horovod.is_initialized():
        return int(horovod.cross_size())
    return int(os.environ.get("GROUP_WORLD_SIZE", even))
