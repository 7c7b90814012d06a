"""The group of the present generation as `torch.distributed`'s default group.

So a script can call `dist.all_reduce(tensor)` as in any other program. The group was formed in the
background before, so that to install it takes no time.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch.distributed as dist

from bftrainer.elastic.members.group import Group
from bftrainer.elastic.members.nccl import AbortableGroup

CPU, GPU = "bftrainer", "bftrainer_nccl"
_formed: dict[str, Any] = {}
"""Backend by name, for torch to take; empty while no group of ours is the default."""


def install(group: Group) -> None:
    """Make `group` the default group, in place of an earlier one of ours.

    Raises:
        RuntimeError: the script has made a default group itself.
    """
    remove()
    if dist.is_initialized():
        raise RuntimeError(
            "torch.distributed has been initialised already: leave init_process_group out of the script, "
            "the run provides the default group"
        )
    for name, device in ((CPU, "cpu"), (GPU, "cuda")):
        if not hasattr(dist.Backend, name.upper()):
            dist.Backend.register_backend(name, lambda *_, name=name: _formed[name], devices=[device])
    store = dist.HashStore()  # type: ignore[attr-defined]  # torch exports it conditionally
    _formed[CPU] = group.backend or dist.ProcessGroupGloo(store, 0, 1, timedelta(seconds=1))
    backends = CPU
    if isinstance(group, AbortableGroup):
        _formed[GPU] = group.accelerated
        backends = f"cpu:{CPU},cuda:{GPU}"
    dist.init_process_group(backends, store=store, rank=group.rank, world_size=group.size)


def remove() -> None:
    """Remove the default group, if it is ours: it would keep connections open."""
    if _formed:
        _formed.clear()
        dist.destroy_process_group()
