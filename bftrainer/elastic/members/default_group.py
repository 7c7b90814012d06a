"""The group of the present generation as `torch.distributed`'s default group.

So a script can call `dist.all_reduce(tensor)` as in any other program. The group was formed in the
background before, so that to install it takes no time.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from bftrainer.elastic.members.group import Group
from bftrainer.messages.loop import DEFAULT_GROUP

NAME = "bftrainer"
_formed: list[Any] = []
"""The backend for torch to take; empty while none of the library's groups is the default."""


def install(group: Group) -> None:
    """Make `group` the default group, in place of an earlier one.

    Raises:
        RuntimeError: the script has made a default group itself.
    """
    remove()
    if dist.is_initialized():
        raise RuntimeError(DEFAULT_GROUP.say())
    if not hasattr(dist.Backend, NAME.upper()):
        dist.Backend.register_backend(NAME, lambda *_: _formed[0], devices=["cpu"])
    store = dist.HashStore()  # type: ignore[attr-defined]  # torch exports it conditionally
    _formed.append(group.backend or dist.ProcessGroupGloo(store, 0, 1, timedelta(seconds=1)))
    dist.init_process_group(NAME, store=store, rank=group.rank, world_size=group.size)
    if group.accelerated is not None or torch.cuda.is_available():
        _add_gpus(group)


def _add_gpus(group: Group) -> None:
    """Add the backend for tensors on GPUs; without NCCL, it is the one of the CPU."""
    types: Any = dist.ProcessGroup.BackendType
    world: Any = dist.group.WORLD
    kind = types.CUSTOM if group.accelerated is None else types.NCCL  # PyTorch keeps one backend of a type
    world._register_backend(torch.device("cuda"), kind, group.accelerated or _formed[0])


def remove() -> None:
    """Remove the default group, if it is the library's: it would keep connections open.

    Its backends are left alone. To destroy the default group would wait for the members' operations in NCCL,
    and for its threads; the group itself ends them in the background.
    """
    if _formed:
        _formed.clear()
        shut_down: Any = dist.distributed_c10d._world.pg_names
        shut_down.pop(dist.group.WORLD, None)
        dist.destroy_process_group()
