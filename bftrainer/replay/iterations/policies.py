"""Policies by name: how far workers go back, who shares devices, in which order; and their figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bftrainer.iterations.model import Floats, PlanRules, SharedDevices
from bftrainer.iterations.orders import ORDERS
from bftrainer.replay.iterations.gangs import NodeSets, gang, in_order
from bftrainer.replay.iterations.shared import JobsReplayed, share
from bftrainer.replay.iterations.workload import MixedJob, MixOptions, jobs_of


@dataclass(frozen=True, slots=True)
class IterationPolicy:
    """Rules by which jobs run.

    Attributes:
        order: Which come first, of `ORDERS`; "" for Gandiva's sets of devices.
        partial: Workers go back through parts of the layers.
        gang: A job's workers run all at once, each with a device to itself.
        apart: A job's workers stay on distinct devices.
        keep: Devices are kept for jobs that would end last (`PlanRules.keep`).
        search: Orders are searched for while few tasks are left (`PlanRules.search`).
    """

    order: str
    partial: bool = False
    gang: bool = False
    apart: bool = True
    keep: bool = False
    search: bool = False


POLICIES: Mapping[str, IterationPolicy] = {
    "tiresias": IterationPolicy("las", gang=True),
    "gandiva": IterationPolicy("", gang=True),
    **{
        f"gang-{order}": IterationPolicy(order, gang=True)
        for order in ORDERS
        if order not in ("las", "product")
    },
    **{f"full-{order}": IterationPolicy(order) for order in ORDERS},
    "jigsaw": IterationPolicy("product", partial=True),
    "jigsaw-size": IterationPolicy("size", partial=True),
    "jigsaw-literal": IterationPolicy("product", partial=True, apart=False),
    "partial-las": IterationPolicy("las", partial=True),
    "partial-longest": IterationPolicy("longest", partial=True, keep=True),
    "partial-searched": IterationPolicy("longest", partial=True, apart=False, keep=True, search=True),
    "partial-shortest": IterationPolicy("shortest", partial=True, keep=True),
}
"""Tiresias, Gandiva, Jigsaw with a job's workers apart and as written, and what these consist of. A product
relative to a job's own largest says nothing of gangs."""


def replay(
    mixed: Sequence[MixedJob],
    options: MixOptions,
    rules: PlanRules,
    memory_gb: float,
    name: str,
    progress: Callable[[float], None] = lambda done: None,
) -> JobsReplayed:
    """Replay the jobs under the policy of this name.

    Raises:
        NeverEndsError: a job cannot run on these devices.
    """
    policy, devices = POLICIES[name], SharedDevices(options.devices, memory_gb)
    jobs = jobs_of(mixed, options, partial=policy.partial)
    if policy.gang:
        choose = in_order(ORDERS[policy.order]) if policy.order else NodeSets()
        return gang(jobs, devices, rules, choose, progress)
    rules = replace(rules, apart=policy.apart, keep=policy.keep, search=policy.search)
    return share(jobs, devices, rules, ORDERS[policy.order], progress)


def figures_of(replayed: JobsReplayed, devices: int) -> dict[str, Any]:
    """Makespan and completion times (h), the devices' use, tasks that moved, and times of decisions (s)."""
    makespan = float(replayed.ended.max())
    return {
        "makespan_h": makespan / 3600,
        "completion_h": _spread((replayed.ended - replayed.arrival) / 3600),
        "device_hours": replayed.busy_s / 3600,
        "devices_busy": replayed.busy_s / (devices * makespan),
        "starts": replayed.starts,
        "moved": replayed.moves / max(1, replayed.starts),
        "decision_s": _spread(np.array(replayed.decisions_s)),
    }


def _spread(values: Floats) -> dict[str, float]:
    p50, p99, largest = (float(value) for value in np.percentile(values, (50, 99, 100)))
    return {"mean": float(values.mean()), "p50": p50, "p99": p99, "max": largest}
