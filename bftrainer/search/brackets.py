"""The rungs of a study: at how many samples trials wait for each other, and which trials do. Pure.

Successive halving (Jamieson and Talwalkar 2016) and Hyperband (Li et al. 2018); ASHA (Li et al. 2020) has the
rungs of successive halving.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from bftrainer.search.study import Stopping, StoppingKind, StudySpec

RUNGS = (StoppingKind.HALVING, StoppingKind.HYPERBAND, StoppingKind.ASHA)
"""Kinds of stopping that pause trials at rungs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bracket:
    """Trials with the numbers from `first` on, `trials` of them, that compete with each other.

    `budgets` has the samples at which each rung ends, counted from the beginning of a trial; the last one is
    the study's budget.
    """

    first: int
    trials: int
    budgets: tuple[int, ...]
    eta: int

    def size(self, rung: int) -> int:
        """Return how many trials take part in a rung, if none fails."""
        return max(1, self.trials // self.eta**rung) if rung else self.trials


def brackets(spec: StudySpec) -> tuple[Bracket, ...]:
    """The brackets of a study by the numbers of their trials; without rungs, one with a single rung."""
    own = spec.stopping
    if own.kind not in RUNGS:
        return (Bracket(first=0, trials=spec.trials, budgets=(spec.budget,), eta=1),)
    budgets = _budgets(own, spec.budget)
    if own.kind is StoppingKind.ASHA:
        return (Bracket(first=0, trials=spec.trials, budgets=budgets, eta=own.eta),)
    found, first = [], 0
    for trials in (spec.trials - sum(spec.added), *spec.added):  # what is added competes with each other
        if own.kind is StoppingKind.HALVING:
            found.append(Bracket(first=first, trials=trials, budgets=budgets, eta=own.eta))
        else:
            found += [replace(b, first=first + b.first) for b in _hyperband(trials, budgets, own.eta)]
        first += trials
    return tuple(found)


def bracket_of(found: tuple[Bracket, ...], trial: int) -> Bracket:
    """The bracket of the trial with this number."""
    return next(b for b in found if trial < b.first + b.trials)


def _budgets(own: Stopping, budget: int) -> tuple[int, ...]:
    found = []
    samples = own.least
    while samples < budget:
        found.append(samples)
        samples *= own.eta
    return (*found, budget)


def _hyperband(trials: int, budgets: tuple[int, ...], eta: int) -> tuple[Bracket, ...]:
    """Brackets that begin at ever later rungs, with as many trials in proportion as Hyperband gives them.

    The published bracket s has ceil((s_max + 1) / (s + 1) * eta^s) trials. Every bracket has one at least; if
    there are fewer trials than brackets, the last brackets have none and are left out.
    """
    last = len(budgets) - 1
    shares = [-(-(last + 1) * eta**s // (s + 1)) for s in range(last, -1, -1)]
    total, found, first = sum(shares), [], 0
    for i, share in enumerate(shares):
        left = trials - first
        later = min(len(shares) - i - 1, max(0, left - 1))
        count = left if i == last else min(left - later, max(1, round(trials * share / total)))
        if count > 0:
            found.append(Bracket(first=first, trials=count, budgets=budgets[i:], eta=eta))
            first += count
    return tuple(found)
