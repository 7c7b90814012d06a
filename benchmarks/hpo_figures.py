"""RubberBand's figures 9 to 12, as tables: stragglers, data price, number of trials, initialisation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hpo_planned import cost, on_machines, planned, pollux
from hpo_tables import Table

from bftrainer.search.plan.model.experiment import successive_halving
from bftrainer.search.plan.model.profile import ExperimentProfile, Latency, Per, Spread
from bftrainer.search.plan.model.simulate import Simulator

ITERATION_S, MINUTES = 8.0, 20.0
"""For figures 10 and 11: figure 11 states 20 minutes, neither states how long an iteration takes."""


def functions(profile: ExperimentProfile) -> ExperimentProfile:
    """The same, billed per function."""
    return replace(profile, billing=replace(profile.billing, per=Per.FUNCTION, minimum_s=0.0))


def figure_9(traces: Path) -> Table:
    """Stragglers: the plans for a calm machine, with iterations of 4 s that differ by more and more."""
    search = successive_halving(64, 4, 508)
    calm = on_machines(pollux(traces, "imagenet", 512), 4.0)
    plans = planned(search, calm, MINUTES / 2)
    lines = []
    for std in (0, 1, 2, 4, 6, 8, 10):
        wild = replace(calm, spread=Spread(std / 4.0))
        row = [f"{std} s"]
        for plan in (plans.static, plans.exact):
            assert plan is not None
            node, function = (
                Simulator(search, profile, samples=400).estimate(plan.steps).total
                for profile in (wild, functions(wild))
            )
            row += [f"${node:,.2f}", f"${function:,.2f}", f"{node / function:.1f}x"]
        lines.append(tuple(row))
    head = ("std of an iteration", "fixed: per node", "per function", "ratio")
    return (*head, "elastic: per node", "per function", "ratio"), lines


def figure_10(traces: Path) -> Table:
    """The price of data, for a large and a small data set."""
    lines = []
    for price in (0.0, 0.01, 0.02, 0.04, 0.08, 0.16):
        row = [f"${price:.2f}"]
        for size in (150.0, 0.15):
            own = on_machines(pollux(traces, "imagenet", 512), ITERATION_S)
            billing = replace(own.billing, data_gb=size, data_price=price)
            found = planned(successive_halving(64, 4, 508), replace(own, billing=billing), MINUTES)
            row += [f"{cost(found.static)}, {cost(found.exact)}", found.saving]
        lines.append(tuple(row))
    head = (
        "price of a GB",
        "150 GB (ImageNet): fixed, elastic",
        "saving",
        "150 MB (CIFAR-10): fixed, elastic",
    )
    return (*head, "saving"), lines


def figure_11(traces: Path) -> Table:
    """The number of trials, in both ways of billing."""
    lines = []
    for trials in (16, 32, 64, 128, 256):
        row = [f"{trials}"]
        own = replace(on_machines(pollux(traces, "imagenet", 512), ITERATION_S, scale=Latency(1)), nodes=256)
        for profile in (own, functions(own)):
            found = planned(successive_halving(trials, 4, 508), profile, MINUTES)
            row += [f"{cost(found.static)}, {cost(found.exact)}", found.saving]
        lines.append(tuple(row))
    return ("trials", "per node: fixed, elastic", "saving", "per function: fixed, elastic", "saving"), lines


def figure_12(traces: Path) -> Table:
    """Initialisation latency by deadline: SHA(512, 4, 4096), iterations of 12 s."""
    lines = []
    for minutes in (52, 55, 60, 75, 90, 110, 130, 160):
        row = [f"{minutes} min"]
        for init in (1.0, 10.0, 100.0):
            own = on_machines(pollux(traces, "imagenet", 2048), 12.0, init=Latency(init))
            found = planned(successive_halving(512, 4, 4096), replace(own, nodes=512), minutes, samples=8)
            row += [f"{cost(found.static)}, {cost(found.exact)}", found.saving]
        lines.append(tuple(row))
    head = ["deadline"]
    for name in ("1 s", "10 s", "100 s"):
        head += [f"{name} to initialise: fixed, elastic", "saving"]
    return tuple(head), lines


FIGURES = {"figure-9": figure_9, "figure-10": figure_10, "figure-11": figure_11, "figure-12": figure_12}
