"""The list of what observes a run. To remove a check is to remove its file, and its line here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bftrainer.elastic.checks.comparison import Comparison
from bftrainer.elastic.checks.double_steps import DoubleSteps
from bftrainer.elastic.checks.idle_steps import IdleSteps
from bftrainer.elastic.checks.loop_variables import ChangingVariables
from bftrainer.elastic.checks.norm_shares import NormShares
from bftrainer.elastic.checks.own_gradients import OwnGradients
from bftrainer.elastic.checks.own_weights import OwnWeights
from bftrainer.elastic.checks.same_data import SameData
from bftrainer.elastic.checks.same_settings import SameSettings
from bftrainer.elastic.loop.observers import StepObserver
from bftrainer.elastic.process.channel import Orders
from bftrainer.elastic.train.policy import Policy
from bftrainer.elastic.train.trained import Trained


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedRun:
    """Input of observers: a run before its first step.

    Attributes:
        orders: None where the script was started by hand.
        settings: arguments of `elastic.Run` that all nodes give alike, by name.
        averages: whether the run averages gradients; else the script does.
        overlaps: whether they are averaged during the backward pass.
        compare_every: steps between comparisons of states; 0: never.
        may_differ: patterns of names that are not compared.
        at_once: the samples that a worker computes at once at most.
        least: the samples that a worker's share has at least.
    """

    orders: Orders | None
    trained: Trained
    data: Any
    policy: Policy
    settings: Mapping[str, object]
    averages: bool
    overlaps: bool
    compare_every: int
    may_differ: Sequence[str]
    at_once: int
    least: int


def observers_of(run: CheckedRun) -> list[StepObserver]:
    """The observers of a run, in the order in which they are called."""
    number = run.orders.trainer if run.orders else 0
    gradients = OwnGradients(
        run.trained, is_watching=run.averages and not run.overlaps, are_averaged=run.averages
    )
    found: list[StepObserver] = [
        SameData(run.data, number, run.may_differ),
        SameSettings.of(run.orders, run.policy, run.settings),
        DoubleSteps(run.trained),
        IdleSteps(run.trained),
        gradients,
        OwnWeights(run.trained, gradients),
    ]
    if run.orders is not None:  # else there are no other nodes, and the process does not begin again
        found += [Comparison(run.compare_every, run.may_differ), ChangingVariables()]
        ranks = run.orders.every_ranks
        found += [NormShares(run.trained, run.policy, ranks, at_most=run.at_once, least=run.least)]
    return found
