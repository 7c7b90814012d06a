"""A trainer: what its user asks for, what was observed of it, and its state."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from bftrainer.model.sizes import EVERY_SIZE, AllowedSizes

Points = tuple[tuple[int, float], ...]
"""Points of a scalability curve: (nodes, samples/s), nodes ascending and above 0; (0, 0) is implied."""

GOODPUT = "goodput."
MOST_SAMPLES = 2**24
"""The largest batch that adapts, as in `elastic.Adaptive`."""
MOST_WORKERS = 1024.0
"""Workers on a node, at most."""
MOST_NOISE = 1e30
"""Largest noise that a run reports: gradients are lost in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Cost of one rescale: `stall_s` stops every member, `init_s` only the new nodes."""

    stall_s: float = 0.0
    init_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RescaleCosts:
    """Costs per direction. The published model is `stall_s` = R_up or R_dw and `init_s` = 0 (eq. 13)."""

    up: Cost = Cost()
    down: Cost = Cost()


ASSUMED_COSTS = RescaleCosts(up=Cost(stall_s=0.5, init_s=5.0), down=Cost(stall_s=0.5))
"""Assumed costs of a rescale until one has been measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceUse:
    """A trainer's use of a device on which it takes turns (`share: time`), by the mean over some steps.

    Attributes:
        step_s: How long a step takes.
        held_s: For how long of that the trainer has its turn: it computes.
        waited_s: For how long it waits for its turn.
        peak: The most memory that a worker has used (bytes).
        memory: That the device has (bytes); 0: not known.
        beside: The trainer with which it takes turns; 0: it is alone.
    """

    step_s: float
    held_s: float
    waited_s: float
    peak: int
    memory: int
    beside: int = 0

    @property
    def alone_s(self) -> float:
        """Time of a step without the wait."""
        return max(self.step_s - self.waited_s, self.held_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptingBatch:
    """A batch that adapts while a trainer runs, as its run last reported. Batches are in samples.

    Attributes:
        batch: A step's, over all workers.
        at_once: What a worker computes at once of it, at most; it accumulates the rest.
        initial: The least that a step may have.
        most: The most that a step may have.
        most_at_once: The most that a worker may compute at once.
        workers: On each node.
        noise: The gradient noise scale (samples); None: what the run said is no noise.
    """

    batch: int
    at_once: int
    initial: int
    most: int
    most_at_once: int
    workers: int
    noise: float | None

    @property
    def shape(self) -> tuple[int, int, int]:
        """Determines the time of a step on a number of nodes: batch, at once, workers."""
        return self.batch, self.at_once, self.workers


def batch_of(metrics: Mapping[str, float]) -> AdaptingBatch | None:
    """Read a run's batch from its figures; None: it does not adapt, or its limits contradict each
    other."""
    names = ("batch", "at_once", "initial", "max", "max_per_worker", "workers")
    found = [metrics.get(GOODPUT + name, math.nan) for name in names]
    if not all(1 <= value <= MOST_SAMPLES for value in found) or found[-1] > MOST_WORKERS:
        return None
    batch, at_once, initial, most, most_at_once, workers = (math.ceil(value) for value in found)
    if not (initial <= batch <= most and at_once <= most_at_once):
        return None
    noise = metrics.get(GOODPUT + "noise", math.nan)
    return AdaptingBatch(
        batch=batch,
        at_once=at_once,
        initial=initial,
        most=most,
        most_at_once=most_at_once,
        workers=workers,
        noise=float(noise) if 0 <= noise <= MOST_NOISE else None,
    )


class Scalability(StrEnum):
    """Says whether the engine learns a trainer's speeds and costs from what it observes."""

    AUTO = "auto"  # it does; the spec's curves and costs are only the prior
    GIVEN = "given"  # it does not: it takes the spec's curves, and its costs if given, as they are


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerSpec:
    """A user's request: one elastic training run (section 3.1 of the paper).

    It runs on no node, or on as many as `sizes` allows from `n_min` to `n_max`, which are such sizes, too.
    `samples` is the work to do, or `progress`, in samples by what they are worth beside those of the initial
    batch; without both the script ends by itself. `curve` and `costs` are None if
    nothing is known of them beforehand.

    With `gpus` its sizes count GPUs, which may be parts of nodes: `curve` is then that of GPUs of one node,
    and `across` that of GPUs of several, where it differs. `whole` above 0: it gets whole nodes of that many.

    With `takes_turns` it may share nodes with another of its user's trainers that does: they compute in turn.
    `memory` is then what a worker needs at most of its device's (bytes); 0: as is measured.
    """

    name: str
    command: tuple[str, ...]
    n_min: int
    n_max: int
    sizes: AllowedSizes = EVERY_SIZE
    launcher: str = "native"
    samples: int | None = None
    progress: int | None = None
    curve: Points | None = None
    costs: RescaleCosts | None = None
    scalability: Scalability = Scalability.AUTO
    curves: tuple[tuple[str, Points], ...] = ()  # node class -> its own curve, where it differs
    weight: float = 1.0
    priority: float = 1.0
    user: str = ""  # that submitted it
    workdir: str = "."
    folder: str = ""  # of its own, where its command runs, with links to what workdir has; empty: in workdir
    env: tuple[tuple[str, str], ...] = ()
    checkpoint_dir: str = ""
    checkpoint_every_s: float = 5.0
    checkpoint_interval_s: float = 0.0  # repeated by a restart: the script's own interval of saving
    batch: tuple[tuple[str, int | str], ...] = ()  # overrides the script's: global, or per_node with lr
    partial: tuple[
        tuple[str, bool | int | str | tuple[str, ...]], ...
    ] = ()  # overrides the script's, with `off`
    workers: int = 0  # processes on each node; 0: one for each device of the node
    stop_signal: str = ""  # torchrun: the ranks that get SIGTERM, `all` or `rank_0`; empty: by the script
    gpus: bool = False
    across: Points | None = None
    whole: int = 0
    takes_turns: bool = False
    memory: int = 0

    @property
    def work(self) -> int | None:
        """The samples to do, however they count; None: the script ends by itself."""
        return self.samples or self.progress

    def fitting(self, nodes: int) -> int:
        """The largest size at which it can run, at most `nodes`; 0 if there is none."""
        return self.sizes.fitting(nodes, self.n_min, self.n_max)

    def allows(self, nodes: int) -> bool:
        """True if it can run on exactly `nodes` nodes."""
        return nodes > 0 and self.fitting(nodes) == nodes

    @property
    def program(self) -> tuple[str, ...]:
        """Identity of a program, equal for its trials: the user, the folder, and the command up to its first
        word that is not an option. One user's trainers say nothing of another's."""
        words = self.command[1:]
        named = next((i for i, word in enumerate(words) if not word.startswith("-")), len(words))
        return (self.user, self.workdir, *self.command[: named + 2])


@dataclass(frozen=True, slots=True)
class Observed:
    """Repeated measurements of one quantity: how often it was measured, and the latest values in order."""

    count: int = 0
    recent: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Observations:
    """Measurements of a trainer, see `performance.observe`.

    `speeds` has (node class, nodes, samples/s). All classes for which the spec has no curve of their own
    count as one, None. `steps` has (node class, nodes, workers, samples of a worker, passes, s): times of
    steps where a worker computes this many samples at once, in this many passes. The other fields are costs
    of rescales (s).
    """

    speeds: tuple[tuple[str | None, int, Observed], ...] = ()
    steps: tuple[tuple[str | None, int, int, int, int, Observed], ...] = ()
    up_stall_s: Observed = Observed()
    up_init_s: Observed = Observed()
    down_stall_s: Observed = Observed()


class TrainerStatus(StrEnum):
    """Stage of a trainer's life. Only the last three are final."""

    WAITING = "waiting"  # submitted; has no nodes
    STARTING = "starting"  # has nodes, but none of its workers is a member yet
    RUNNING = "running"  # its members train
    COMPLETED = "completed"  # did its work
    CANCELLED = "cancelled"  # its user or an admin ended it
    FAILED = "failed"  # its program failed repeatedly without progress between

    @property
    def final(self) -> bool:
        """True if the trainer has ended."""
        return self in (TrainerStatus.COMPLETED, TrainerStatus.CANCELLED, TrainerStatus.FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trainer:
    """An unfinished trainer inside the engine.

    Attributes:
        nodes: What the last plan gave it.
        members: The published membership in rank order; rank 0 is a survivor of the one before, if any.
        started: For each node, the generation that started its worker.
        warm: Nodes whose workers are ready but not members yet.
        generation: Grows with every step that acts on the trainer.
        published: The generation in which its current membership was published.
        failures: Failures of its program in a row, without progress between.
        failed_at: When its program failed within the last hour, progress or not, ascending.
        failed_in: The generation of the last failure: workers started before it belong to the same incident.
        progress: The most samples at any failure. A failure after more samples restarts the count.
        changed_at: When its members last changed.
        fruitless: Memberships in a row that did not last for the spec's `checkpoint_interval_s`.
        steady_until: Until when it does not grow, as it has just given nodes to another user's trainers.
        late: A worker was killed for keeping its node without doing what it should, and no membership was
            published since.
        use: How it uses its device where it takes turns, when it was alone there last.
        batch: How its batch adapts; None: it does not, or has not reported it.
        left: The samples left to do, as it last reported; None: it has not.
        served_s: The node-time that it had up to `counted_at`; None: nothing is counted yet.
        shared: By trainer beside which it took turns: its speed then, where 1 is that alone on these nodes.
    """

    id: int
    spec: TrainerSpec
    submitted_at: float
    generation: int = 0
    published: int = 0
    nodes: frozenset[str] = frozenset()
    members: tuple[str, ...] = ()
    started: Mapping[str, int] = field(default_factory=dict)
    warm: frozenset[str] = frozenset()
    observed: Observations = Observations()
    failures: int = 0
    failed_in: int = 0
    failed_at: tuple[float, ...] = ()
    progress: float = 0.0
    changed_at: float = 0.0
    fruitless: int = 0
    steady_until: float = 0.0
    late: bool = False
    use: DeviceUse | None = None
    batch: AdaptingBatch | None = None
    left: float | None = None
    served_s: float = 0.0
    counted_at: float | None = None
    shared: Mapping[int, float] = field(default_factory=dict)

    def served(self, now: float) -> float:
        """The node-time (s) that it has had, where its nodes have not changed since it was counted last."""
        since = now if self.counted_at is None else self.counted_at
        return self.served_s + len(self.nodes) * max(0.0, now - since)

    @property
    def yields(self) -> bool:
        """True if others get nodes first: it does not run, and kept its last nodes in vain."""
        return self.late and not self.members

    @property
    def joining(self) -> dict[str, int]:
        """The nodes whose workers are not members yet, with the generation that started them."""
        return {node: generation for node, generation in self.started.items() if node not in self.members}

    @property
    def status(self) -> TrainerStatus:
        """WAITING, STARTING or RUNNING: the engine has no trainers that have ended."""
        if not self.nodes:
            return TrainerStatus.WAITING
        return TrainerStatus.RUNNING if self.members else TrainerStatus.STARTING
