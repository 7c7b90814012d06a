"""Whether a loss is a sum over the batch: the average over nodes then is smaller, the more these are."""

from __future__ import annotations

from typing import Any

import torch

SUM = 2
"""What PyTorch's losses call reduction="sum"."""
FOLLOWED = 32
"""So many operations are looked at, from the loss backwards."""
ADDED = frozenset({"AddBackward0", "SubBackward0", "NegBackward0"})
TOLD = (
    "the loss is a sum over the batch. The run averages over the samples of all nodes, as if it were a mean: "
    "on n nodes each has an n-th of the samples, and the step is an n-th as large. Divide the sum by the "
    "batch's samples, len(x), and multiply the learning rate by the batch size to get the same steps"
)


def is_sum(loss: Any, samples: int) -> bool:
    """Whether a loss of so many samples has a sum over them as one of its terms, as far as can be told: a sum
    that is divided by something is none."""
    ahead: list[tuple[Any, float]] = [(loss.grad_fn, 1.0)]
    for _ in range(FOLLOWED):
        if not ahead or samples < 2:
            return False
        node, factor = ahead.pop()
        kind = type(node).__name__
        if kind in ADDED:
            ahead += [(next_one, factor) for next_one, _ in node.next_functions if next_one is not None]
        elif kind == "MulBackward0":
            scale = _number(node)
            ahead += [(one, factor * scale) for one, _ in node.next_functions if one is not None and scale]
        elif abs(factor) * samples > 2.0 and _adds_up(node, kind, samples):
            return True
    return False


def _number(node: Any) -> float:
    """The number by which a product multiplies; 0 if it is not one."""
    for name in ("_saved_other", "_saved_self"):
        value = getattr(node, name, None)
        if isinstance(value, torch.Tensor) and value.numel() == 1:
            return float(value.detach())
    return 0.0


def _adds_up(node: Any, kind: str, samples: int) -> bool:
    if kind == "SumBackward0":
        sizes: Any = getattr(node, "_saved_self_sym_sizes", ())
        return len(sizes) > 0 and int(sizes[0]) == samples
    of: Any = getattr(node, "_saved_self", None)
    is_loss = getattr(node, "_saved_reduction", None) == SUM and isinstance(of, torch.Tensor)
    return is_loss and of.dim() > 0 and int(of.shape[0]) == samples
