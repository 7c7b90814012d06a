"""Importing, before workers are forked, the installed packages that their script will import."""

from __future__ import annotations

import ast
import gc
import importlib
import importlib.util
import site
import sys
import sysconfig
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

UNSAFE = 3
"""Exit code of the warm process: an import started threads or a device, so it must not fork any more."""
DEVICES = ("/dev/nvidia", "/dev/kfd", "/dev/dri/", "/dev/accel/")
"""Files of GPUs' drivers begin so."""
_NOT_BEFORE_FORK = {"mpi4py", "tensorflow", "jax", "cupy", "pycuda", "ray"}
"""Packages that are known to start something when imported."""


@contextmanager
def importing() -> Iterator[None]:
    """Around imports: without garbage collection, which would take a sixth of their time.

    Imported objects are then exempt from later collections, so that forks go on sharing their memory.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def import_for(script: str) -> None:
    """Import the installed modules that a script imports. Its own modules may do anything then: those are
    left out.

    Raises:
        SystemExit: with code `UNSAFE`, an import has started threads or a device.
    """
    import torch  # noqa: PLC0415  see `main`

    with importing():
        for name, taken in imports_of(Path(script)).items():
            if is_installed(name.partition(".")[0]):
                try:
                    module = importlib.import_module(name)
                    for attribute in taken:  # some packages, such as transformers, import it only now
                        getattr(module, attribute, None)
                except Exception:  # noqa: BLE001, S112  whatever a package does: the worker will say so
                    continue
    is_initialized: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    if threading.active_count() > 1 or is_initialized or _has_opened_a_device():
        sys.exit(UNSAFE)


def _has_opened_a_device() -> bool:
    """True if a driver is open, for instance to ask what a GPU can do: PyTorch need not know of it, and a
    fork cannot use the GPU then."""
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the descriptor by which the folder itself was read
            if str(entry.readlink()).startswith(DEVICES):
                return True
    return False


def imports_of(script: Path) -> dict[str, list[str]]:
    """The modules that a script imports at its top level, in order, without relative imports, with the names
    that it takes from each.

    A module that lies beside the script is replaced by what it imports in turn.
    """
    found: dict[str, list[str]] = {}
    read: set[Path] = set()

    def follow(path: Path) -> None:
        read.add(path)
        for name, taken in _imported(path):
            own = _beside(script, name)
            if own is None:
                found.setdefault(name, []).extend(taken)
            elif own not in read:
                follow(own)

    follow(script)
    return found


def _beside(script: Path, name: str) -> Path | None:
    """The file of a module in the script's folder, which Python searches first; None if it is not there."""
    top = script.parent / name.partition(".")[0]
    if not (top.is_dir() or top.with_suffix(".py").is_file()):
        return None
    path = script.parent.joinpath(*name.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _imported(path: Path) -> list[tuple[str, list[str]]]:
    """The modules that one file imports, and what from each; nothing if it cannot be read: the worker itself
    will report the error."""
    try:
        body = ast.parse(path.read_text("utf-8")).body if path.is_file() else []  # a pipe has no end
    except (OSError, UnicodeDecodeError, SyntaxError, ValueError):
        return []
    found: list[tuple[str, list[str]]] = []
    for statement in body:
        if isinstance(statement, ast.Import):
            found += [(alias.name, []) for alias in statement.names]
        elif isinstance(statement, ast.ImportFrom) and statement.module and not statement.level:
            found.append((statement.module, [alias.name for alias in statement.names]))
    return found


def is_installed(package: str) -> bool:
    """True if a top-level package is installed with this interpreter, and can be imported before a fork."""
    if package in _NOT_BEFORE_FORK:
        return False
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return False
    if spec is None or spec.origin is None:
        return False
    places = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    places.update(site.getsitepackages())  # a venv may see the system's as well
    return spec.origin in ("built-in", "frozen") or any(
        Path(spec.origin).is_relative_to(place) for place in places
    )
