"""The size of a step on a number of nodes, and the learning rate that follows. Pure, but for `Pace`.

*Strong scaling*, `FixedGlobal`: a step takes the same number of samples on any number of nodes, so
training is the same mathematics throughout. *Weak scaling*, `FixedPerNode`: every node takes the same
number of samples, so a step grows with the nodes; a rule says how the learning rate follows. *Adaptive*: a
step takes as many samples as training gains most from, by what is measured while it runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from bftrainer.messages.arguments import (
    ACCUMULATE,
    ACCUMULATE_AND_POLICY,
    LARGEST_BATCH,
    LR_FACTOR,
    LR_RULE,
    TOO_SMALL,
    WARMUP_STEPS,
)

RULES: dict[str, Callable[[int], float]] = {
    "none": lambda nodes: 1.0,
    "linear": float,
    "sqrt": math.sqrt,
}
"""Nodes -> factor on the learning rate, which the script chooses for one node."""


@dataclass(frozen=True, slots=True)
class FixedGlobal:
    """Every step takes `batch` samples, shared out over the nodes; the learning rate stays.

    Raises:
        ValueError: a batch below 1.
    """

    batch: int

    def __post_init__(self) -> None:
        _positive("a global batch", self.batch)

    warmup_steps = 0

    def total(self, nodes: int) -> int:
        """Samples of one step on all of `nodes` nodes together."""
        return self.batch

    def factor(self, nodes: int) -> float:
        """Factor on the learning rate on `nodes` nodes."""
        return 1.0


@dataclass(frozen=True, slots=True)
class FixedPerNode:
    """Every node takes `batch` samples a step; of several workers on a node, each.

    Args:
        batch: samples per node and step.
        lr: how the learning rate, chosen for one node, follows: a name of `RULES`, or a function from
            the number of nodes to a factor.
        warmup_steps: steps after a rescale in which the factor goes evenly from old to new.

    Raises:
        ValueError: a batch below 1, an unknown rule, or a negative number of steps.
    """

    batch: int
    lr: str | Callable[[int], float] = "none"
    warmup_steps: int = 0

    def __post_init__(self) -> None:
        _positive("a batch per node", self.batch)
        if isinstance(self.lr, str) and self.lr not in RULES:
            raise ValueError(LR_RULE.say(rule=self.lr, known=", ".join(RULES)))
        if self.warmup_steps < 0:
            raise ValueError(WARMUP_STEPS.say(steps=self.warmup_steps))

    def total(self, nodes: int) -> int:
        """Samples of one step on all of `nodes` nodes together."""
        return self.batch * nodes

    def factor(self, nodes: int) -> float:
        """Factor on the learning rate on `nodes` nodes.

        Raises:
            ValueError: the rule gives a factor that is not above 0 and finite.
        """
        rule = RULES[self.lr] if isinstance(self.lr, str) else self.lr
        return _usable(rule(nodes), f"{nodes} nodes")


GAINS: dict[str, Callable[[float, float], float]] = {
    "adascale": lambda scale, gain: gain,
    "linear": lambda scale, gain: scale,
    "sqrt": lambda scale, gain: math.sqrt(scale),
}
"""Batch over the initial one, and what a step with it is worth in steps of that -> factor on the rate."""
MOST_SAMPLES = 2**24
"""The largest batch; up to here single precision counts exactly, in which members exchange it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adaptive:
    """Every step takes as many samples as training gains most from: Pollux's goodput, measured as it runs.

    Args:
        initial: samples of a step at first, with which the script has chosen its learning rate; never fewer.
        max: the most samples of a step, over all workers.
        max_per_worker: the most that a worker computes at once, as its memory allows; more are accumulated.
            The run's batch_size by default.
        lr: how the learning rate follows the batch: `adascale` (by what the step is worth), `linear`,
            `sqrt`, or a function from the initial batch and the present one to a factor.

    Raises:
        ValueError: limits that contradict each other, or an unknown rule.
    """

    initial: int
    max: int
    max_per_worker: int | None = None
    lr: str | Callable[[int, int], float] = "adascale"

    def __post_init__(self) -> None:
        _positive("an initial batch", self.initial)
        if not self.initial <= self.max <= MOST_SAMPLES:
            raise ValueError(LARGEST_BATCH.say(largest=self.max, initial=self.initial, most=MOST_SAMPLES))
        if self.max_per_worker is not None:
            _positive("max_per_worker", self.max_per_worker)
        if isinstance(self.lr, str) and self.lr not in GAINS:
            raise ValueError(LR_RULE.say(rule=self.lr, known=", ".join(GAINS)))

    warmup_steps = 0

    @property
    def limits(self) -> dict[str, object]:
        """Values that must be equal on all nodes, by name."""
        rule = self.lr if isinstance(self.lr, str) else "a function"
        return {"largest batch": self.max, "most per worker": self.max_per_worker, "lr rule": rule}

    def total(self, nodes: int) -> int:
        """Samples of the first step, on all of `nodes` nodes together."""
        return self.initial

    def factor(self, nodes: int) -> float:
        """Factor on the learning rate at first."""
        return 1.0

    def factor_of(self, batch: int, gain: float) -> float:
        """Factor on the learning rate for a step of `batch` samples that is worth `gain` steps of
        the initial batch.

        Raises:
            ValueError: the script's rule gives a factor that is not above 0 and finite.
        """
        if isinstance(self.lr, str):
            return GAINS[self.lr](batch / self.initial, gain)
        return _usable(self.lr(self.initial, batch), f"a batch of {batch}")


Policy = FixedGlobal | FixedPerNode | Adaptive


class StepSize(Protocol):
    """A policy, or the batch that follows an adaptive one, as the training loop asks it."""

    @property
    def warmup_steps(self) -> int:
        """Steps after a change in which the learning rate's factor goes evenly from old to new."""

    def total(self, nodes: int) -> int:
        """Samples of one step on all of `nodes` nodes together."""

    def factor(self, nodes: int) -> float:
        """Factor on the learning rate on `nodes` nodes."""


def _usable(factor: float, where: str) -> float:
    factor = float(factor)
    if not (factor > 0 and math.isfinite(factor)):
        raise ValueError(LR_FACTOR.say(factor=factor, where=where))
    return factor


def _positive(what: str, size: int) -> None:
    if size < 1:
        raise ValueError(TOO_SMALL.say(what=what, size=size))


def overridden(policy: Policy, spec: Mapping[str, Any]) -> Policy:
    """A script's policy, overridden by a spec's key `batch`.

    `spec` is {"global": samples}, {"per_node": samples, "lr": rule, "warmup_steps": steps} or {"initial":
    samples, "max": samples, "max_per_worker": samples, "lr": rule}; keys that the second or third lacks stay
    as the script has them.
    """
    if not spec:
        return policy
    if "global" in spec:
        return FixedGlobal(spec["global"])
    if "initial" in spec:
        return replace(policy, **spec) if isinstance(policy, Adaptive) else Adaptive(**spec)
    said = {"batch": spec["per_node"]} | {k: spec[k] for k in ("lr", "warmup_steps") if k in spec}
    base = policy if isinstance(policy, FixedPerNode) else FixedPerNode(spec["per_node"])
    return replace(base, **said)


def chosen(given: Policy | None, batch_size: int, accumulate: int | None, spec: Mapping[str, Any]) -> Policy:
    """The policy of a run: what the spec's key `batch` says, else `given`, else one of its own.

    That is `batch_size * accumulate` samples per node.

    Raises:
        ValueError: `given` and `accumulate`, or an `accumulate` below 1.
    """
    if given is not None and accumulate is not None:
        raise ValueError(ACCUMULATE_AND_POLICY.say())
    if accumulate is not None and accumulate < 1:
        raise ValueError(ACCUMULATE.say(accumulate=accumulate))
    return overridden(given or FixedPerNode(batch_size * (accumulate or 1)), spec)


class Pace:
    """The factor on the learning rate as steps go by; a part of the training state.

    After a change of target it goes evenly from where it was to the target.
    """

    def __init__(self) -> None:
        self._origin = self._target = 1.0
        self._since = -1  # no step has been taken under any target

    def turn_to(self, target: float, step: int, warmup_steps: int) -> None:
        """Move to `target` from `step` on; a run that begins starts with it.

        Without a warm-up nothing is kept of what was before: members that have seen different parts of a
        step that was lost still have the same state.
        """
        if self._since < 0 or not warmup_steps:
            self._origin = target
        elif target != self._target:
            self._origin = self.factor(step, warmup_steps)
        else:
            return
        self._target, self._since = target, step if warmup_steps else 0

    def factor(self, step: int, warmup_steps: int) -> float:
        """The factor for the step after `step` others."""
        done = min(1.0, (step - self._since + 1) / (warmup_steps + 1))
        return self._origin + done * (self._target - self._origin)

    def state_dict(self) -> dict[str, Any]:
        """Its part of the training state."""
        return {"origin": self._origin, "target": self._target, "since": self._since}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict` has returned."""
        self._origin, self._target = state_dict["origin"], state_dict["target"]
        self._since = state_dict["since"]
