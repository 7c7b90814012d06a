"""Plans of several experiments that share a bound on nodes, as the brackets of Hyperband do.

Brackets run beside each other, each with nodes of its own, or one after the other, each with all nodes, or
share nodes that are held all the time trial by trial: whichever is cheapest.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from operator import add

from bftrainer.search.plan import at_once as held
from bftrainer.search.plan import planner
from bftrainer.search.plan.baselines import StagePlan, rounded, worth
from bftrainer.search.plan.model.experiment import MOST_STAGES, Experiment, joined
from bftrainer.search.plan.model.profile import ExperimentProfile, Per
from bftrainer.search.plan.model.simulate import TOLERANCE, PlanEstimate, Simulator
from bftrainer.search.plan.planner import Costs, DeadlineAnswer
from bftrainer.search.plan.pools.execution import side_by_side
from bftrainer.search.plan.soonest import Later, Order, Ways
from bftrainer.search.plan.split import bounds, shared_out


@dataclass(frozen=True, slots=True)
class Planned:
    """One experiment, or several joined, with its answer and what made it."""

    simulator: Simulator
    answer: DeadlineAnswer

    @property
    def name(self) -> str:
        """The experiment's name."""
        return self.simulator.experiment.name


Way = tuple[Order, list[Planned]]
"""An order of the experiments, with their plans in it."""


@dataclass(frozen=True, slots=True)
class Whole:
    """All experiments with their plans.

    Attributes:
        parts: Plans of each experiment, or of all joined.
        order: The order of the experiments.
        tried: The orders that were tried.
        proven: Whether no even plan is known to be cheaper, in whatever order the experiments go on. What the
            answers of the parts say of it is about this order only.
        later: What later deadlines cost, if nothing meets this one. The parts then have the fastest plans.
        untried: Why nothing was tried trial by trial, where nothing meets the deadline; empty if it was.
    """

    parts: list[Planned]
    order: Order
    tried: tuple[Order, ...]
    proven: bool
    later: Sequence[Later] = ()
    untried: str = ""


@dataclass(frozen=True, slots=True)
class Question:
    """The question for all experiments.

    Attributes:
        profile: With the most nodes that all may have together, and the most trials at a time.
        chance: As `planner.plan` takes it.
        method: The planner whose plan is to be shown; None: the cheapest of all.
        samples, seed: Number of draws, and their seed.
    """

    profile: ExperimentProfile
    deadline_s: float
    chance: float | None = None
    method: str | None = None
    samples: int = 64
    seed: int = 0

    def shown(self, answer: DeadlineAnswer) -> StagePlan | None:
        """The plan of an answer that is asked for."""
        return answer.others.get(self.method) if self.method else answer.chosen

    def of_each(self, count: int) -> Question:
        """Return the question for each of `count` experiments beside each other: all are on time only if each
        is, and the draws of one say nothing of another's."""
        return self if self.chance is None else replace(self, chance=self.chance ** (1 / count))

    def simulator(self, experiment: Experiment, nodes: int) -> Simulator:
        """Return the simulator of one experiment on at most `nodes`, with the same draws."""
        profile = replace(self.profile, nodes=nodes)
        return Simulator(experiment, profile, self.samples, self.seed)

    def part(self, experiment: Experiment, nodes: int) -> Planned:
        """Plan one experiment on at most `nodes` nodes."""
        simulator = self.simulator(experiment, nodes)
        return Planned(simulator, planner.plan(simulator, self.deadline_s, self.chance))


def together(experiments: Sequence[Experiment], question: Question) -> Whole:
    """Plan experiments that hold no more nodes at a time, all together, than the profile allows.

    Of ways that cost as much, the fastest. The answers of those that had to share are not proven: only some
    shares are tried.
    """
    own = question.of_each(len(experiments))
    alone = [own.part(experiment, question.profile.nodes) for experiment in experiments]
    row = _in_a_row(experiments, question) if len(alone) > 1 else None
    ways = [*_beside(alone, own)]
    if row is not None and question.shown(row.answer):
        ways.append((Order.ROW, [row]))
    at_once = _at_once(experiments, question) if question.method is None else None
    if at_once is not None and question.shown(at_once[0].answer):
        ways.append((Order.AT_ONCE, [at_once[0]]))
    tried = tuple(
        order
        for order, made in ((Order.BESIDE, alone), (Order.ROW, row), (Order.AT_ONCE, at_once))
        if made is not None
    )
    if not ways:
        return _refused(alone, row, at_once, question, tried)
    order, parts = min(ways, key=lambda way: _worth(way[1], question))
    if len(alone) == 1:
        one = alone[0] if at_once is None else _one_of_all(alone[0], at_once[0])
        return Whole([one], order, tried, proven=one.answer.proven)
    return Whole(parts, order, tried, proven=_cost(parts, question) <= _bound(alone, question))


def _refused(
    alone: Sequence[Planned],
    row: Planned | None,
    at_once: tuple[Planned, list[StagePlan]] | None,
    question: Question,
    tried: tuple[Order, ...],
) -> Whole:
    """The fastest plans in whatever order is best, and what later deadlines cost."""
    profile = question.profile
    sizes = bounds(profile) if len(alone) > 1 else [profile.nodes]
    shares = [[Costs(question.simulator(part.simulator.experiment, n)) for n in sizes] for part in alone]
    plans = at_once[1] if at_once else []
    chain = Costs(row.simulator) if row else None
    ways = Ways(profile.nodes, profile.parallelism, shares, chain, plans)
    order, found = ways.fastest()
    own = list(alone)
    if order is Order.ROW and row is not None:
        own = [row]
    elif order is Order.AT_ONCE and at_once is not None:
        own = [at_once[0]]
    parts = [replace(part, answer=_without(part.answer, plan)) for part, plan in zip(own, found, strict=True)]
    fresh = [part.answer.fresh(part.answer.fastest) for part in parts]
    later = ways.later(max(one.jct_s for one in fresh), sum(one.total for one in fresh))
    return Whole(parts, order, tried, proven=False, later=later, untried=_untried(alone, question))


def _untried(alone: Sequence[Planned], question: Question) -> str:
    """Return why there are no plans trial by trial; empty if these were tried."""
    stages = sum(len(part.simulator.experiment.stages) for part in alone)
    if question.method is not None:
        return f"--method {question.method} plans in stages"
    if question.profile.billing.per is Per.FUNCTION:
        return "functions are billed (billing.per)"
    return f"there are {stages} stages, and {MOST_STAGES} are the most" if stages > MOST_STAGES else ""


def _beside(alone: Sequence[Planned], question: Question) -> Iterator[Way]:
    """Each experiment on nodes of its own, if that can be."""
    if not all(question.shown(part.answer) for part in alone):
        return
    if _fits(alone, question):
        yield Order.BESIDE, list(alone)
        return
    shared = _shared_out(alone, question)
    if shared is not None and _fits(shared, question):
        yield Order.BESIDE, [_unproven(part) for part in shared]


def _in_a_row(experiments: Sequence[Experiment], question: Question) -> Planned | None:
    """One experiment after the other, each on all nodes."""
    if sum(len(experiment.stages) for experiment in experiments) > MOST_STAGES:
        return None
    chain = joined(experiments)
    return question.part(replace(chain, name=f"{chain.name}, {Order.ROW}"), question.profile.nodes)


def _at_once(experiments: Sequence[Experiment], question: Question) -> tuple[Planned, list[StagePlan]] | None:
    """All experiments at once on nodes that are held all the time; with the plans for any number of nodes."""
    if sum(len(experiment.stages) for experiment in experiments) > MOST_STAGES:
        return None
    simulator = question.simulator(joined(experiments), question.profile.nodes)
    brackets = side_by_side(len(experiment.stages) for experiment in experiments)
    plans = held.at_once(simulator, brackets, bounds(question.profile))
    if not plans:
        return None
    answer = held.answer(simulator, brackets, plans, question.deadline_s, question.chance)
    return Planned(simulator, answer), plans


def _one_of_all(stages: Planned, held: Planned) -> Planned:
    """One experiment, whose plans in stages and trial by trial are compared with each other."""
    own, other = stages.answer, held.answer
    chosen = min((plan for plan in (own.chosen, other.chosen) if plan), key=worth, default=None)

    def fresh(plan: StagePlan) -> PlanEstimate:
        return (own if plan.steps else other).fresh(plan)

    every = {**own.others, **other.others}
    return replace(stages, answer=replace(own, chosen=chosen, others=every, fresh=fresh))


def _worth(parts: Sequence[Planned], question: Question) -> tuple[float, float]:
    """A key that sorts ways as `worth` sorts plans."""
    found = [question.shown(part.answer) for part in parts]
    longest = max(own.estimate.jct_s if own else math.inf for own in found)
    return rounded(_cost(parts, question)), longest


def _bound(alone: Sequence[Planned], question: Question) -> float:
    """No even plan of all experiments costs less, in whatever order they go on.

    Where new nodes come at once and cost nothing, none is cheaper because another experiment used its nodes
    before: each experiment costs what it costs alone, or more. Else nothing is known, nor with a chance.
    """
    profile, billing = question.profile, question.profile.billing
    free = not (profile.scale.expected or profile.init.expected or billing.fetch)
    if question.chance is not None or not free or (billing.minimum_s and billing.per is Per.NODE):
        return -math.inf
    bounds = [part.answer.bound for part in alone]
    return sum(-math.inf if bound is None else bound for bound in bounds) * (1 + TOLERANCE)


def _nodes(part: Planned, question: Question) -> int:
    found = question.shown(part.answer)
    return found.nodes if found else 0


def _cost(parts: Sequence[Planned], question: Question) -> float:
    found = [question.shown(part.answer) for part in parts]
    return sum(own.estimate.total if own else math.inf for own in found)


def _fits(parts: Sequence[Planned], question: Question) -> bool:
    """Return whether these hold no more nodes, and run no more trials, than all may together."""
    plans = [question.shown(part.answer) for part in parts]
    trials = sum(own.at_a_time for own in plans if own)
    most = question.profile.parallelism
    return sum(_nodes(part, question) for part in parts) <= question.profile.nodes and (
        most is None or trials <= most
    )


def _shared_out(alone: Sequence[Planned], question: Question) -> list[Planned] | None:
    """The cheapest way found to share the nodes out."""
    options = []
    for part in alone:
        sizes = [n for n in bounds(question.profile) if n < _nodes(part, question)]
        tried = [*(question.part(part.simulator.experiment, n) for n in sizes), part]
        shown = [own for own in tried if question.shown(own.answer)]
        options.append([(_nodes(own, question), *_worth([own], question), own) for own in shown])
    return shared_out(options, question.profile.nodes, add)


def _unproven(part: Planned) -> Planned:
    return replace(part, answer=replace(part.answer, proven=False))


def _without(answer: DeadlineAnswer, fastest: StagePlan) -> DeadlineAnswer:
    """The answer where all together cannot be done in time."""
    others: dict[str, StagePlan | None] = dict.fromkeys(answer.others)
    return replace(answer, chosen=None, fastest=fastest, others=others, bound=None, proven=False)
