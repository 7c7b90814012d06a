"""Shared by the tables of benchmarks/hpo.py: plans by all planners, and how they are shown."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from hpo_profiles import Curve, per_iteration, strong_scaling, together

from bftrainer.search.plan.baselines import StagePlan, cheapest, fixed_sizes, fixed_trials
from bftrainer.search.plan.methods.exact import exact
from bftrainer.search.plan.methods.greedy import greedy
from bftrainer.search.plan.model.experiment import Experiment
from bftrainer.search.plan.model.profile import Billing, ExperimentProfile, Latency
from bftrainer.search.plan.model.simulate import Simulator
from bftrainer.search.plan.model.table import tabulate

MACHINE = 12.24
"""Dollars an hour of a p3.8xlarge with four GPUs, on demand, in 2021."""


@dataclass(frozen=True)
class Planned:
    """The plans of one search under one deadline; None where none is on time."""

    static: StagePlan | None
    naive: StagePlan | None
    greedy: StagePlan | None
    exact: StagePlan | None

    @property
    def saving(self) -> str:
        """Return how many times as much the cheapest fixed size costs as the exact plan."""
        if self.static is None or self.exact is None:
            return "-"
        return f"{self.static.estimate.total / self.exact.estimate.total:.2f}x"


def planned(search: Experiment, profile: ExperimentProfile, minutes: float, *, samples: int = 32) -> Planned:
    """Plan a search by all planners."""
    simulator, deadline_s = Simulator(search, profile, samples=samples), 60 * minutes
    table = tabulate(simulator)
    static = cheapest(fixed_sizes(simulator), deadline_s)
    return Planned(
        static=static,
        naive=cheapest(fixed_trials(simulator), deadline_s),
        greedy=greedy(simulator, deadline_s, static),
        exact=exact(simulator, table, deadline_s).plan,
    )


def cost(plan: StagePlan | None) -> str:
    """Return a plan's cost, in words."""
    return f"${plan.estimate.total:,.2f}" if plan else "-"


def clock(plan: StagePlan | None) -> str:
    """Return how long a plan takes, as minutes and seconds."""
    return f"{int(plan.estimate.jct_s) // 60}:{int(plan.estimate.jct_s) % 60:02}" if plan else "-"


def pollux(traces: Path, model: str, batch: int) -> Curve:
    """Strong scaling of a model of Pollux, GPUs together."""
    return strong_scaling(together(traces / "pollux-osdi21" / "traces" / model), batch)


def on_machines(curve: Curve, iteration_s: float, **changes: object) -> ExperimentProfile:
    """A profile on machines with four GPUs, where an iteration takes `iteration_s` on one GPU."""
    own = ExperimentProfile(
        curve=curve,
        iteration_samples=per_iteration(curve, iteration_s),
        node_workers=4,
        nodes=128,
        most=64,
        billing=Billing(price=MACHINE, minimum_s=60, unit="$"),
    )
    return replace(own, **changes)  # type: ignore[arg-type]


SOON = Latency(15)
"""Table 2: a machine comes within 15 s from a warm pool, and is ready after 15 s more."""
