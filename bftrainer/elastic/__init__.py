"""The library for training scripts: a data-parallel loop whose nodes come and go while it runs.

    run = elastic.Run(model, optimizer, dataset, batch_size=64)
    for x, y in run:                       # this node's share of every global batch
        loss = F.cross_entropy(run.model(x), y)
        run.backward(loss)                 # instead of optimizer.zero_grad() and loss.backward()
        run.step(loss=loss.item())         # instead of optimizer.step()

Started by bftrainer, the loop runs on the nodes that its trainer has at the moment; started by hand it
is an ordinary training loop on one. Scripts for torchrun or Elastic Horovod use `attach` instead.
Nothing else of bftrainer imports torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from bftrainer.elastic.attach.job import Job, attach
from bftrainer.elastic.train.policy import Adaptive, FixedGlobal, FixedPerNode

if TYPE_CHECKING:
    from bftrainer.elastic.loop.run import Run
    from bftrainer.elastic.partial.options import Partial

NEED_TORCH = {"Run": "loop.run", "Partial": "partial.options"}

__all__ = ["Adaptive", "FixedGlobal", "FixedPerNode", "Job", "Partial", "Run", "attach"]


def __getattr__(name: str) -> Any:
    """Import torch only for `Run` and `Partial`: `bftrainer submit`, the daemon, scripts with `attach` and
    Horovod's driver do without.

    Raises:
        AttributeError: no such name.
    """
    if name not in NEED_TORCH:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{NEED_TORCH[name]}"), name)
