"""Exchanges between the ranks of a script on torchrun."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from bftrainer.messages.ranks import ACCELERATE_COUNTS, LIGHTNING_COUNTS, OTHER_COUNT, OTHER_STEP, TOO_LONG

MOST_BYTES = 64 << 20
"""Bytes to take from another rank at once, at most: a stranger that joined first may answer."""

GROUP = "torch.distributed"


def highest(values: Sequence[int]) -> list[int]:
    """Element-wise maximum over ranks. All ranks must call it, equally often.

    The ranks are those of torch.distributed's default group; where there is none, this process is alone.

    Raises:
        RuntimeError: a rank is lost.
    """
    dist = _formed()
    if dist is None or dist.get_world_size() == 1:
        return list(values)
    import torch  # noqa: PLC0415  it is imported already; scripts without it attach, too

    found = torch.tensor(list(values), dtype=torch.int64, device=_device())
    dist.all_reduce(found, dist.ReduceOp.MAX)
    return [int(value) for value in found]


def exchanged(value: Any) -> list[Any]:
    """The values of all ranks, by rank, as JSON has them. All ranks must call it.

    torch's own collectives of objects unpickle what another rank sends, and a pickle may run any command.

    Raises:
        RuntimeError: a rank is lost.
        ValueError: a rank's value is too large, or no JSON.
    """
    dist = _formed()
    if dist is None or dist.get_world_size() == 1:
        return [value]
    import torch  # noqa: PLC0415  as in `highest`

    text = json.dumps(value).encode()
    [most] = highest([len(text)])
    if not 0 < most <= MOST_BYTES:
        raise ValueError(TOO_LONG.say(size=most, most=MOST_BYTES))
    mine = torch.frombuffer(bytearray(text.ljust(most)), dtype=torch.uint8).to(_device())
    every = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(every, mine)
    return [json.loads(each.cpu().numpy().tobytes()) for each in every]


def _formed() -> Any:
    """torch.distributed, if this process has imported it and its default group is there; else None."""
    dist = sys.modules.get("torch.distributed")
    return dist if dist is not None and dist.is_available() and dist.is_initialized() else None


def _device() -> Any:
    """Device on which tensors are exchanged: a group of NCCL alone exchanges none on the CPU."""
    import torch  # noqa: PLC0415  as in `highest`
    from torch import distributed as dist  # noqa: PLC0415

    on_cpu = "cpu:" in str(dist.get_backend_config())
    return torch.device("cpu") if on_cpu else torch.accelerator.current_accelerator()


def counted() -> dict[str, int]:
    """Number of ranks, by each library that counts them in this process."""
    dist = _formed()
    found = {GROUP: 1 if dist is None else int(dist.get_world_size())}
    accelerate = sys.modules.get("accelerate.state")
    if accelerate is not None and accelerate.is_initialized():
        found["accelerate"] = int(accelerate.PartialState().num_processes)
    return found


def apart(size: int, said: Mapping[str, int]) -> str:
    """Reason why `size` processes do not train together: a count in `said` differs; empty if all agree."""
    wrong = {who: count for who, count in said.items() if count != size}
    if not wrong:
        return ""
    told = " and ".join(f"{who} counts {count}" for who, count in wrong.items())
    if "Lightning" in wrong:
        return LIGHTNING_COUNTS.say(size=size, who=told)
    message = ACCELERATE_COUNTS if "accelerate" in wrong else OTHER_COUNT
    return message.say(size=size, who=told)


def check_same_start(step: int) -> None:
    """Refuse to begin where ranks go on from the checkpoints of different steps. All ranks must call it.

    Raises:
        ValueError: they do.
    """
    found = highest([step, -step])
    if found != [step, -step]:
        raise ValueError(OTHER_STEP.say(step=step, lowest=-found[1], highest=found[0]))
