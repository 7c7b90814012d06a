"""`python -m bftrainer.elastic.recorded.tensor_files`: prints as JSON what files of tensors hold.

Their names come as a list in JSON on standard input. Of each tensor a fingerprint, of other values the
values, by their names: {"best.pt": {"w/0.weight": [...]}}. The files are of runs of the user's own script.
"""

from __future__ import annotations

import contextlib
import json
import pickle
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bftrainer.elastic.recorded.fingerprints import fingerprint

UNREADABLE = (
    *(OSError, ValueError, RuntimeError, KeyError, ImportError, AttributeError, EOFError, TypeError),
    pickle.UnpicklingError,
)
MOST = 5_000
"""Values of a file to print."""


def contents(path: Path) -> dict[str, Any]:
    """The values in a file, by name.

    Raises:
        Exception: whatever a reader raises for a file that it cannot read.
    """
    if path.suffix in (".npz", ".npy"):
        loaded: Any = np.load(path, allow_pickle=False)
        loaded = {name: loaded[name] for name in loaded.files} if path.suffix == ".npz" else loaded
    elif path.suffix == ".safetensors":
        from safetensors.torch import load_file  # noqa: PLC0415  where it is installed

        loaded = load_file(path)
    else:
        loaded = torch.load(path, map_location="cpu", weights_only=False)
    found: dict[str, Any] = {}
    for name, value in _leaves(loaded, ""):
        if len(found) < MOST:
            found[name] = value
    return found


def _leaves(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, torch.Tensor | np.ndarray):
        yield name, _tensor(torch.as_tensor(value))
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _leaves(inner, f"{name}/{key}" if name else str(key))
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield from _leaves(inner, f"{name}/{index}" if name else str(index))
    elif type(value) in (int, float, bool, str) or value is None:
        yield name, value


def _tensor(tensor: torch.Tensor) -> Any:
    if tensor.numel() == 1 and not tensor.is_complex():
        return float(tensor)
    if tensor.dtype == torch.uint8:  # a generator's state
        return "bytes"
    return [tensor.numel(), *fingerprint(tensor)][1:]


def main() -> None:
    """Print the contents of the files that can be read."""
    found = {}
    for name in json.load(sys.stdin):
        with contextlib.suppress(*UNREADABLE):
            found[name] = contents(Path(name))
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
