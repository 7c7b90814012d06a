"""Makes the parts of a run from what its script gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader

from bftrainer.elastic.checks.of_run import CheckedRun, observers_of
from bftrainer.elastic.loop.device_turns import TakesTurns
from bftrainer.elastic.loop.member_group import peers_of
from bftrainer.elastic.loop.observers import Observers, StepObserver
from bftrainer.elastic.loop.peers import SingleProcess
from bftrainer.elastic.loop.turn import Stepped
from bftrainer.elastic.members.patience import Patience
from bftrainer.elastic.partial.options import Partial, check_partial, overridden
from bftrainer.elastic.partial.steps import PartialSteps
from bftrainer.elastic.process.channel import Orders
from bftrainer.elastic.recorded import watcher
from bftrainer.elastic.state import parts as own_parts
from bftrainer.elastic.state.parts import UNSAVED, UnsavedBuffers
from bftrainer.elastic.state.training_state import STEPPED, TrainingState
from bftrainer.elastic.train import average as averagings
from bftrainer.elastic.train import policy as policies
from bftrainer.elastic.train.average import Averaging
from bftrainer.elastic.train.batches import Batches
from bftrainer.elastic.train.buffers import KeptBuffers
from bftrainer.elastic.train.modes import PART as MODES
from bftrainer.elastic.train.modes import Modes, least_of
from bftrainer.elastic.train.policy import Adaptive, Policy, StepSize
from bftrainer.elastic.train.schedule import Every, Schedule
from bftrainer.elastic.train.stopped import PART as STOPPED
from bftrainer.elastic.train.stopped import Stopped
from bftrainer.elastic.train.streamed import batches_of, opened, passes
from bftrainer.elastic.train.trainable import PART as TRAINABLE
from bftrainer.elastic.train.trainable import Trainable
from bftrainer.elastic.train.trained import Trained, trained
from bftrainer.elastic.train.update import Update

if TYPE_CHECKING:  # it needs SciPy, which takes long to import, and only batches that adapt need it
    from bftrainer.elastic.adaptive.adapting import Adapting


@dataclass(frozen=True, slots=True)
class Objects:
    """Objects that `elastic.Run` trains."""

    model: torch.nn.Module | Mapping[str, torch.nn.Module]
    optimizer: torch.optim.Optimizer | Mapping[str, torch.optim.Optimizer]
    scheduler: Any
    scaler: torch.amp.GradScaler | None
    parts: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Samples:
    """Samples to train on, their number in a step, and the length of the run."""

    data: Any
    batch_size: int | None
    collate: Callable[[list[Any]], Any] | None
    policy: Policy | None
    accumulate: int | None
    epochs: int | None
    seed: int
    least_per_worker: int | None

    @property
    def at_once(self) -> int | None:
        """The most that a node computes at once, as far as it is given beside the data."""
        if (
            self.batch_size is None
            and isinstance(self.policy, Adaptive)
            and not isinstance(self.data, DataLoader)
        ):
            return self.policy.max_per_worker
        return self.batch_size


@dataclass(frozen=True, slots=True)
class Updates:
    """Rules by which a step's gradients become its update."""

    scheduler_every: Every | None
    clip_norm: float | None
    ddp: bool | Mapping[str, Any]
    average: bool
    partial: Partial | None


@dataclass(frozen=True, slots=True)
class Agreement:
    """Values that the nodes have in common, and the bounds of their waits."""

    compare_every: int
    may_differ: Sequence[str]
    timeout_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunParts:
    """The parts of a run. `passes`: over the data, that its loop makes; None: others end it."""

    orders: Orders | None
    trained: Trained
    batches: Batches
    averaging: Averaging
    update: Update
    stepped: Stepped
    trainable: Trainable
    modes: Modes
    kept_buffers: KeptBuffers
    state: TrainingState
    peers: SingleProcess
    observers: Observers
    adapting: Adapting | None
    passes: int | None
    seed: int


def assembled(
    objects: Objects, samples: Samples, how: Updates, agreed: Agreement, joined: Callable[[], None]
) -> RunParts:
    """The parts of a run. `joined` is called when others share the samples, before the next step.

    Raises:
        ValueError, TypeError: a combination that cannot work, with what to give instead.
    """
    orders = Orders.from_environment()
    number, spec = (orders.trainer, orders.batch) if orders else (0, {})
    source = opened(samples.data, samples.at_once, samples.collate, samples.seed)
    policy = policies.chosen(samples.policy, source.batch_size, samples.accumulate, spec)
    what = trained(objects.model, objects.optimizer, objects.scheduler)
    schedule = Schedule(what.schedulers, how.scheduler_every)
    adapting, step_size, at_once = _adapting(policy, what, source.batch_size, objects.scaler)
    stepped, update = Stepped(), Update(what, schedule, objects.scaler, how.clip_norm, step_size)
    freezing, modes = Trainable(what.models, number), Modes(what.models, number)
    (budget, goal), least = _work(orders, policy), least_of(what.models, samples.least_per_worker, at_once)
    stopped = Stopped(samples.epochs, budget, goal)
    state = own_state(objects, what, stepped) | {"pace": update.pace}
    state |= {UNSAVED: UnsavedBuffers(state), MODES: modes, STOPPED: stopped}
    state |= {TRAINABLE: freezing} if how.ddp is False else {}
    checks = observers_of(checked_run(orders, what, policy, samples, how, agreed, (at_once, least)))
    averaging, partial = _averaging(how, what, policy, freezing, orders)
    checks[:0] = [*watcher.watching.observers(what), *TakesTurns.of(orders, what.models.values(), averaging)]
    observers = _observing(checks, adapting, partial)
    training = TrainingState({**state, **observers.parts()})
    count, cuts = passes(samples.epochs, orders), {"budget": budget, "goal": goal, "least": least}
    batches = batches_of(source, step_size, epochs=count, stand_in=averaging.needs_batch, **cuts)
    peers = peers_of(
        orders,
        training,
        joined,
        streams=not averaging.needs_batch,  # else a rank without samples cannot follow the others
        observers=observers,
        patience=Patience(agreed.timeout_s),
        stopped=stopped,
        of=batches.whole,
    )
    _connect(adapting, partial, update, batches, averaging, peers, least)
    schedule.compare(batches.epochs, *map(batches.steps, orders.ranks if orders else (1, 1)))
    return RunParts(
        orders=orders,
        trained=what,
        batches=batches,
        averaging=averaging,
        update=update,
        stepped=stepped,
        trainable=freezing,
        modes=modes,
        kept_buffers=KeptBuffers(what),
        state=training,
        peers=peers,
        observers=observers,
        adapting=adapting,
        passes=count,
        seed=samples.seed,
    )


def own_state(objects: Objects, what: Trained, stepped: Stepped) -> dict[str, Any]:
    """The parts of the training state that are the script's, and how far several optimisers are, by name.

    Raises:
        TypeError, ValueError: one that cannot be kept, with what to do instead.
    """
    state = {**own_parts.plain_only(what.parts()), **own_parts.checked(objects.parts)}
    state |= {"scaler": objects.scaler} if objects.scaler else {}
    return state | ({STEPPED: stepped} if what.is_several else {})


def _work(orders: Orders | None, policy: Policy) -> tuple[int | None, float | None]:
    """The spec's work: samples, and steps by what they are worth. With a fixed batch each sample counts 1."""
    if orders is None or orders.progress is None:
        return orders.samples if orders else None, None
    if isinstance(policy, Adaptive):
        return None, orders.progress / policy.initial
    return orders.progress, None


def _adapting(
    policy: Policy, what: Trained, batch_size: int, scaler: torch.amp.GradScaler | None
) -> tuple[Adapting | None, StepSize, int]:
    """The batch's adaptation, if the policy has one; the step's size; and a node's samples at once."""
    if not isinstance(policy, Adaptive):
        return None, policy, batch_size
    from bftrainer.elastic.adaptive.adapting import Adapting  # noqa: PLC0415  see above

    adapting = Adapting(policy, what, batch_size, scaler)
    return adapting, adapting.live, adapting.live.most_at_once


def _observing(
    checks: list[StepObserver], adapting: Adapting | None, partial: PartialSteps | None
) -> Observers:
    """Observers of steps: those that check them, and those that measure them."""
    measuring = [*([adapting.measured] if adapting else []), *([partial] if partial else [])]
    return Observers([*checks, *measuring])


def _connect(
    adapting: Adapting | None,
    partial: PartialSteps | None,
    update: Update,
    batches: Batches,
    averaging: Averaging,
    peers: SingleProcess,
    least: int,
) -> None:
    """Tell those that steer a run's steps of the parts that are made after them."""
    if adapting:
        adapting.connect(update, batches, averaging, peers, least)
    if partial:
        partial.connect(update, peers)


def _averaging(
    how: Updates, what: Trained, policy: Policy, trainable: Trainable, orders: Orders | None
) -> tuple[Averaging, PartialSteps | None]:
    """The averaging of gradients; the same again where each worker computes a part of them."""
    averaging = averagings.chosen(what, how.ddp, how.average, trainable)
    options = overridden(how.partial, orders.partial if orders else {})
    if options is None:
        return averaging, None
    check_partial(what, policy, averaging)
    partial = PartialSteps(options, what, trainable)
    return partial, partial


def checked_run(
    orders: Orders | None,
    what: Trained,
    policy: Policy,
    samples: Samples,
    how: Updates,
    agreed: Agreement,
    limits: tuple[int, int],
) -> CheckedRun:
    """Observers' view of a run. `limits`: the most samples at once, and the fewest of a share."""
    settings: dict[str, object]
    at_once, least = limits
    settings = {"epochs": samples.epochs, "seed": samples.seed, "scheduler_every": how.scheduler_every}
    settings |= policy.limits if isinstance(policy, Adaptive) else {}
    settings |= {"partial": how.partial} if how.partial else {}
    settings |= {"clip_norm": how.clip_norm} | ({"least_per_worker": least} if least > 1 else {})
    return CheckedRun(
        orders=orders,
        trained=what,
        data=samples.data,
        policy=policy,
        settings={**settings, "average": how.average, "ddp": how.ddp is not False},
        averages=how.average,
        overlaps=how.ddp is not False,
        compare_every=agreed.compare_every,
        may_differ=agreed.may_differ,
        at_once=at_once,
        least=least,
    )
