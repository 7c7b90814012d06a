"""Norms of an optimiser's gradients, pre-conditioned as it steps them; nothing here waits for a device."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from bftrainer.elastic.state.leaves import as_real

SQUARES = ("exp_avg_sq", "square_avg", "sum")
"""Names of Adam's, RMSprop's and Adagrad's averages of squared gradients."""

Gradients = list[tuple[torch.Tensor, torch.Tensor]]
"""Parameters and their gradients, dense ones."""


def dense(parameters: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor | None]) -> Gradients:
    """The parameters that have a gradient, with it, but for sparse ones."""
    pairs = zip(parameters, gradients, strict=True)
    return [(p, g) for p, g in pairs if g is not None and not g.is_sparse]


class Preconditioner:
    """Divides gradients as an optimiser does that divides them by the root of their squares' average.

    Others, such as SGD, step gradients as they are, and so are these then. An optimiser that has not stepped
    yet does not say which of both it is.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer
        self._steps: float | None = None
        self.is_known = False
        """True if the optimiser has stepped in this process."""
        self._factors: dict[int, torch.Tensor] | None = None

    def stepped(self) -> None:
        """The optimiser has stepped."""
        self.is_known, self._factors = True, None
        self._steps = None if self._steps is None else self._steps + 1

    def apply(self, gradients: Gradients) -> list[torch.Tensor]:
        """The gradients, pre-conditioned; without those of parameters that were never stepped."""
        if self._factors is None:
            self._factors = self._found()
        if not self._factors:
            return [as_real(g.detach()) for _, g in gradients]
        pairs = [
            (as_real(g.detach()), by) for p, g in gradients if (by := self._factors.get(id(p))) is not None
        ]
        return list(torch._foreach_mul([g for g, _ in pairs], [by for _, by in pairs])) if pairs else []

    def apply_to_both(
        self, before: Sequence[torch.Tensor], gradients: Sequence[tuple[torch.Tensor, torch.Tensor]]
    ) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Like `apply`, for copies of these gradients from `before` and for themselves. Changes the copies
        and uses up the factors: new memory would take longer than all that is computed here."""
        factors, self._factors = self._factors or self._found(), None
        if not factors:
            return [as_real(old) for old in before], [as_real(g.detach()) for _, g in gradients]
        known = [
            (as_real(old), as_real(g.detach()), factors[id(p)])
            for (p, g), old in zip(gradients, before, strict=True)
            if id(p) in factors
        ]
        olds, now, scaled = ([one[i] for one in known] for i in range(3))
        if known:
            torch._foreach_mul_(olds, scaled)
            torch._foreach_mul_(scaled, now)
        return olds, scaled

    def _found(self) -> dict[int, torch.Tensor]:
        found: dict[int, torch.Tensor] = {}
        for group in self._optimizer.param_groups:
            states = [(p, self._optimizer.state.get(p) or {}) for p in group["params"]]
            key = next((key for key in SQUARES for _, state in states if key in state), None)
            if key is None:
                continue
            known = [(p, state) for p, state in states if key in state]
            # float16 does not reach as far as one over a small root
            squares = [as_real(state[key]) for _, state in known]
            roots = torch._foreach_sqrt(
                [square.to(torch.promote_types(square.dtype, torch.bfloat16)) for square in squares]
            )
            torch._foreach_mul_(roots, self._unbiased(key, group, known[0][1]))
            torch._foreach_add_(roots, group.get("eps", 1e-8))
            torch._foreach_reciprocal_(roots)
            found |= {id(p): root for (p, _), root in zip(known, roots, strict=True)}
        return found

    def _unbiased(self, key: str, group: dict[str, object], state: dict[str, object]) -> float:
        """Factor 1 / sqrt(share of its full size that an average from 0 has reached)."""
        betas = group.get("betas")
        if key != "exp_avg_sq" or not isinstance(betas, tuple | list) or "step" not in state:
            return 1.0
        if self._steps is None:  # once: it may be on a device
            self._steps = float(state["step"])  # type: ignore[arg-type]
        return float((1 - float(betas[1]) ** max(1.0, self._steps)) ** -0.5)


def squared_norm(gradients: Sequence[torch.Tensor]) -> torch.Tensor:
    """The sum of all squares, a scalar in single precision on the device of the first; 0 of nothing."""
    if not gradients:
        return torch.zeros(())
    norms = torch._foreach_norm(
        list(gradients), 2.0, dtype=torch.promote_types(gradients[0].dtype, torch.float32)
    )
    device = norms[0].device
    return torch.stack([norm.to(device) for norm in norms]).square().sum().float()
