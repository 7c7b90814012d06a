"""Hooks into PyTorch that record a script which knows nothing of it; put in place before the script runs.

`install` is called by a `sitecustomize` that the conductor of the rehearsal puts on PYTHONPATH. So it must
be quick and must import nothing: PyTorch is hooked when the script imports it.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

TORCH = "torch"


def install() -> None:
    """Have PyTorch hooked as soon as it is imported."""
    if TORCH in sys.modules:
        _hook()
    else:
        sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder):
    """Finds torch as others would, with a loader that hooks it in the end."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != TORCH:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Hooking(spec.loader)
        return spec


class _Hooking(Loader):
    """Loads a module by another loader, then hooks PyTorch."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader  # modules ask their specs for it
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        _hook()


def _hook() -> None:
    from torch.nn.modules import module  # noqa: PLC0415  not before the script does
    from torch.optim import optimizer  # noqa: PLC0415

    from bftrainer.elastic.recorded import watcher  # noqa: PLC0415
    from bftrainer.elastic.recorded.recorder import CostRecorder  # noqa: PLC0415

    recorder = CostRecorder()
    watcher.watching = recorder
    os.register_at_fork(after_in_child=recorder.forked)
    optimizer.register_optimizer_step_pre_hook(recorder.before_step)
    optimizer.register_optimizer_step_post_hook(recorder.after_step)
    module.register_module_forward_pre_hook(recorder.before_forward)
    module.register_module_forward_hook(recorder.after_forward, with_kwargs=True, always_call=True)
    _note_made(recorder)


def _note_made(recorder: Any) -> None:
    """Have the recorder know of each optimizer that is made."""
    import torch  # noqa: PLC0415

    make = torch.optim.Optimizer.__init__

    def made(self: Any, *args: Any, **more: Any) -> None:
        make(self, *args, **more)
        recorder.made(self)

    torch.optim.Optimizer.__init__ = made  # type: ignore[method-assign]
