"""The size of a step on a number of nodes, and the learning rate that follows. Pure, but for `Pace`.

*Strong scaling*, `FixedGlobal`: a step takes the same number of samples on any number of nodes, so
training is the same mathematics throughout. *Weak scaling*, `FixedPerNode`: every node takes the same
number of samples, so a step grows with the nodes; a rule says how the learning rate follows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

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
        """What the learning rate is multiplied by on `nodes` nodes."""
        return 1.0


@dataclass(frozen=True, slots=True)
class FixedPerNode:
    """Every node takes `batch` samples a step; of several workers on a node, each.

    Args:
        batch: samples per node and step.
        lr: how the learning rate, chosen for one node, follows: a name of `RULES`, or a function from
            the number of nodes to a factor.
        warmup_steps: over so many steps after a rescale the factor goes evenly from old to new.

    Raises:
        ValueError: a batch below 1, an unknown rule, or a negative number of steps.
    """

    batch: int
    lr: str | Callable[[int], float] = "none"
    warmup_steps: int = 0

    def __post_init__(self) -> None:
        _positive("a batch per node", self.batch)
        if isinstance(self.lr, str) and self.lr not in RULES:
            raise ValueError(f"lr rule {self.lr!r}: give one of {', '.join(RULES)}, or a function")
        if self.warmup_steps < 0:
            raise ValueError(f"warmup_steps {self.warmup_steps}: 0 or more")

    def total(self, nodes: int) -> int:
        """Samples of one step on all of `nodes` nodes together."""
        return self.batch * nodes

    def factor(self, nodes: int) -> float:
        """What the learning rate is multiplied by on `nodes` nodes.

        Raises:
            ValueError: the rule gives a factor that is not above 0 and finite.
        """
        rule = RULES[self.lr] if isinstance(self.lr, str) else self.lr
        factor = float(rule(nodes))
        if not (factor > 0 and math.isfinite(factor)):
            raise ValueError(f"the lr rule gives {factor} for {nodes} nodes: a factor is above 0 and finite")
        return factor


Policy = FixedGlobal | FixedPerNode


def _positive(what: str, size: int) -> None:
    if size < 1:
        raise ValueError(f"{what} of {size}: at least 1 sample")


def overridden(policy: Policy, spec: Mapping[str, Any]) -> Policy:
    """A script's policy, overridden by a spec's key `batch`.

    `spec` is {"global": samples} or {"per_node": samples, "lr": rule, "warmup_steps": steps}; keys that
    the second lacks stay as the script has them.
    """
    if not spec:
        return policy
    if "global" in spec:
        return FixedGlobal(spec["global"])
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
        raise ValueError("accumulate and policy: with a policy, micro-batches follow from batch_size")
    if accumulate is not None and accumulate < 1:
        raise ValueError(f"accumulate {accumulate}: at least 1 micro-batch per step")
    return overridden(given or FixedPerNode(batch_size * (accumulate or 1)), spec)


class Pace:
    """The factor on the learning rate as steps go by; a part of the training state.

    After a change of target it goes evenly from where it was to the target.
    """

    def __init__(self) -> None:
        self._origin = self._target = 1.0
        self._since = -1  # no step has been taken under any target

    def turn_to(self, target: float, step: int, warmup_steps: int) -> None:
        """Move to `target` from `step` on; a run that begins starts with it."""
        if self._since < 0:
            self._origin = target
        elif target != self._target:
            self._origin = self.factor(step, warmup_steps)
        else:
            return
        self._target, self._since = target, step

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
