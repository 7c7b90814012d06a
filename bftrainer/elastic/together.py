"""What the ranks of a script on torchrun find out together."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def highest(values: Sequence[int]) -> list[int]:
    """Of each value the highest that any rank has given. All ranks have to call it, equally often.

    The ranks are those of torch.distributed's default group; where there is none, this process is alone.

    Raises:
        RuntimeError: a rank is lost.
    """
    dist = sys.modules.get("torch.distributed")
    if dist is None or not dist.is_available() or not dist.is_initialized() or dist.get_world_size() == 1:
        return list(values)
    import torch  # noqa: PLC0415  it is imported already; scripts without it attach, too

    # a group of NCCL alone exchanges nothing that is on the CPU
    on_cpu = "cpu:" in str(dist.get_backend_config())
    device = torch.device("cpu") if on_cpu else torch.accelerator.current_accelerator()
    found = torch.tensor(list(values), dtype=torch.int64, device=device)
    dist.all_reduce(found, dist.ReduceOp.MAX)
    return [int(value) for value in found]


def require_same_start(step: int) -> None:
    """Refuse to begin where ranks go on from the checkpoints of different steps. All ranks have to call it.

    Raises:
        ValueError: they do.
    """
    found = highest([step, -step])
    if found != [step, -step]:
        raise ValueError(
            f"this rank resumes from step {step}, others from {-found[1]} to {found[0]}: a shared file "
            "system shows them different checkpoints"
        )
