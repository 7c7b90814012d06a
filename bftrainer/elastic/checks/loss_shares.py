"""Finds losses that are no mean over samples: nodes that cut a step into other shares train another model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from bftrainer.elastic.checks.norm_shares import sizes_at_once
from bftrainer.elastic.loop.observers import StepObserver
from bftrainer.elastic.process import warnings
from bftrainer.elastic.train.batches import MicroBatch
from bftrainer.elastic.train.policy import Policy
from bftrainer.messages.loop import LOSS_CURVED, LOSS_SUM, LOSS_UNEVEN

ALWAYS, SELDOM = 50, 20
"""So many losses are looked at, and from then on each of so many: a GPU has to say its numbers."""
MOST_NODES = 64
"""So many steps of a loss's computation are looked at, from its end."""
MEAN, SUM = 1, 2
"""How autograd writes a loss function's reduction."""
LINEAR = ("Add", "Sub", "Neg", "Rsub", "Mul", "ToCopy", "Clone", "Squeeze", "View", "Alias")
CURVED = ("Sqrt", "Log", "Log1p", "Exp", "Pow", "Reciprocal")


@dataclass(frozen=True, slots=True)
class Term:
    """A sum over values, of which a loss is made.

    Attributes:
        name: what to call it.
        parts: of how many values the sum is; of a tensor its first dimension.
        divisor: by what it is divided.
        is_mean: divided by the loss function itself.
        is_of_samples: whether it is surely over samples; a sum of a tensor may be over weights.
        is_curved: the loss takes a root, power, logarithm or quotient of it.
    """

    name: str
    parts: int
    divisor: float
    is_mean: bool = False
    is_of_samples: bool = True
    is_curved: bool = False


def terms(loss: torch.Tensor) -> Iterator[Term]:
    """The sums of which a loss is made, in the order of its computation. Means that nothing can be wrong
    with are left out."""
    left: list[tuple[Any, float, bool]] = [(loss.grad_fn, 1.0, False)]
    for _ in range(MOST_NODES):
        if not left:
            return
        node, divisor, is_curved = left.pop()
        if node is None:
            continue
        found = _term(node, divisor, is_curved)
        if found is not None:
            yield found
            continue
        kind = _kind(node)
        inputs = [each for each, _ in reversed(node.next_functions)]
        if kind == "Div" and (inputs[0] is None or len(inputs) == 1):  # by a number without a gradient
            left += [(each, divisor * _number(node._saved_other), is_curved) for each in inputs]
        elif kind == "Div" or kind in CURVED:
            left += [(each, divisor, True) for each in inputs]
        elif kind in LINEAR:
            left += [(each, divisor, is_curved) for each in inputs]


def _term(node: Any, divisor: float, is_curved: bool) -> Term | None:
    """What a step of autograd's adds up, if it does."""
    kind, reduction = _kind(node), getattr(node, "_saved_reduction", 0)
    if kind in ("NllLoss", "NllLoss2D") and reduction == MEAN:
        labels, by = int(node._saved_target.numel()), _number(node._saved_total_weight)
        return Term("cross_entropy", labels, divisor * by, is_mean=True, is_curved=is_curved)
    if reduction == SUM or (reduction == MEAN and is_curved):
        return Term("the loss function", 0, divisor, is_mean=reduction == MEAN, is_curved=is_curved)
    if kind == "Sum" or (kind == "Mean" and is_curved):
        shape = getattr(node, "_saved_self_sym_sizes", ())
        is_mean = kind == "Mean"
        return Term("sum()", shape[0], divisor, is_mean, False, is_curved) if shape else None
    return None


def _kind(node: Any) -> str:
    """Of MulBackward0: Mul."""
    return str(node.name()).partition("Backward")[0]


def _number(value: Any) -> float:
    """0 for what is no number, such as a divisor for each sample."""
    if isinstance(value, torch.Tensor):
        return float(value) if value.numel() == 1 else 0.0
    return float(value)


@dataclass(slots=True)
class TermCourse:
    """What one term of a loss was in the micro-batches so far."""

    sizes: set[int] = field(default_factory=set)
    divisors: set[float] = field(default_factory=set)
    per_sample: set[float] = field(default_factory=set)
    parts: set[float] = field(default_factory=set)
    is_uneven: bool = False
    is_undivided: bool = False

    def add(self, term: Term, samples: int) -> None:
        """It was this for so many samples."""
        self.sizes.add(samples)
        self.divisors.add(round(term.divisor, 6))
        self.per_sample.add(round(term.divisor / samples, 6))
        self.parts.add(term.parts / samples)
        self.is_uneven |= term.divisor != term.parts or term.parts % samples != 0
        self.is_undivided |= term.divisor == 1 and samples > 1

    def trouble(self, term: Term) -> str:
        """What is wrong with it; empty: nothing that is known."""
        follows = len(self.sizes) > 1 and len(self.parts) == 1
        is_of_samples = term.is_of_samples or follows
        if term.is_curved:
            return LOSS_CURVED.say(what=term.name) if is_of_samples else ""
        if len(self.per_sample) > 1 and len(self.divisors) > 1:
            return "" if term.is_mean and not self.is_uneven else LOSS_UNEVEN.say(what=term.name)
        is_constant = len(self.per_sample) > 1 or self.is_undivided
        if term.is_mean or not is_of_samples or not is_constant:
            return ""
        return LOSS_SUM.say(what=term.name, divisor=f"{term.divisor:g}")


class LossTerms:
    """The losses of a training so far."""

    def __init__(self) -> None:
        self._count = 0
        self._courses: dict[tuple[str, int, str], TermCourse] = {}

    def look(self, loss: torch.Tensor, samples: int, optimizer: str = "") -> str:
        """What is wrong with the loss of a micro-batch, as far as it and those before show; else nothing."""
        self._count += 1
        if samples < 1 or (self._count > ALWAYS and self._count % SELDOM):
            return ""
        for place, term in enumerate(terms(loss)):
            course = self._courses.setdefault((optimizer, place, term.name), TermCourse())
            course.add(term, samples)
            if said := course.trouble(term):
                return said
        return ""


class LossShares(StepObserver):
    """Warns once of a loss that depends on how a step's samples are cut, where nodes cut them differently.

    Args: as those of `sizes_at_once`.
    """

    def __init__(self, policy: Policy, ranks: Sequence[int], *, at_most: int, least: int) -> None:
        cuts = sizes_at_once(policy, ranks, at_most=at_most, least=least)
        self._looks = len({size for sizes in cuts.values() for size in sizes}) > 1
        self._losses = LossTerms()

    def before_backward(self, optimizer: str, part: MicroBatch, loss: torch.Tensor) -> None:
        if self._looks and (said := self._losses.look(loss, part.stop - part.start, optimizer)):
            self._looks = False
            warnings.warn(said)
