"""Tasks, jobs, devices and plans: a task is one worker's part of one iteration (Jigsaw, section 3)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class IterationTask:
    """A worker's needs in each iteration: time (s), and peak memory beside the models (GB)."""

    seconds: float
    memory_gb: float


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationJob:
    """A synchronous training: iteration i + 1 begins when all tasks of iteration i have ended.

    Attributes:
        arrival: When it comes (s).
        tasks: One for each worker.
        iterations: How many it trains.
        model_gb: Parameters that stay on the device of each worker (GB).
        exchange_s: Time between the last task of an iteration and the next iteration (s).
    """

    arrival: float
    tasks: tuple[IterationTask, ...]
    iterations: int
    model_gb: float
    exchange_s: float = 0.0

    @property
    def iteration_s(self) -> float:
        """The shortest time of an iteration: its longest task, and the exchange (s)."""
        return max(task.seconds for task in self.tasks) + self.exchange_s

    @property
    def work_s(self) -> float:
        """Device time of all its tasks (s)."""
        return self.iterations * sum(task.seconds for task in self.tasks)


@dataclass(frozen=True, slots=True)
class SharedDevices:
    """Devices of one kind: how many, and the memory of each (GB)."""

    count: int
    memory_gb: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRules:
    """Constraints of a plan.

    Attributes:
        gamma_s_per_gb: Delay of a worker's start on another device, in seconds per GB of its model.
        apart: A job's workers stay on distinct devices.
        weigh: A worker also moves once its tasks have waited longer than the move takes, since the last one;
            without, only if this one task starts earlier (as the paper has it).
        keep: Devices of jobs that would end last start no task that delays their next one.
        search: While few tasks are left, plans follow the best of many orders (`search.best_order`).
        interval_s: How far ahead a plan reaches (s).
    """

    gamma_s_per_gb: float = 0.8
    apart: bool = True
    weigh: bool = False
    keep: bool = False
    search: bool = False
    interval_s: float = 60.0


@dataclass(frozen=True, slots=True)
class PlannedTasks:
    """Tasks in the order in which they were planned; all arrays have one entry a task.

    Attributes:
        slot: The worker, counted over all jobs.
        iteration: From 0.
        device: From 0.
        start: When it computes first (s); it does not stop before its end.
        moved: The worker's iteration before ran elsewhere, or this is its first.
    """

    slot: Ints
    iteration: Ints
    device: Ints
    start: Floats
    moved: Flags
