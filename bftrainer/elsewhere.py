"""Keeps packages from reading settings in the folder in which a command starts, where others may write.

Matplotlib reads `matplotlibrc` there, and some versions evaluate words of it. Numba reads where its cache is,
and runs what it finds in that.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

READ_SETTINGS = frozenset({"matplotlib", "numba"})
"""Packages that do so, as they are imported."""


class _Finder(MetaPathFinder):
    """Finds those packages as Python does, and has them imported in another folder."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The package, if it is one of them; None: others may find it."""
        found = PathFinder.find_spec(fullname, path, target) if fullname in READ_SETTINGS else None
        if found is not None and found.loader is not None:
            own = found.loader.exec_module
            found.loader.exec_module = lambda module: _elsewhere(own, module)  # type: ignore[method-assign]
        return found


def _elsewhere(execute: Callable[[ModuleType], None], module: ModuleType) -> None:
    here = os.open(".", os.O_PATH | os.O_DIRECTORY)
    os.chdir("/")
    try:
        execute(module)
    finally:
        os.fchdir(here)
        os.close(here)


def import_elsewhere() -> None:
    """Have those packages imported in the root folder from now on, whoever imports them."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
