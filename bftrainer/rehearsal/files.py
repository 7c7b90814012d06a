"""Reads the files that the runs of a rehearsal have written."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bftrainer.rehearsal.records import FileFacts
from bftrainer.rehearsal.scratch import ScratchCopy

TEXT_MB = 4
LINES = 20_000
TENSORS = (".pt", ".pth", ".ckpt", ".bin", ".safetensors", ".npz", ".npy")
READ_S = 120.0


def files_of(copies: Mapping[str, ScratchCopy]) -> dict[str, dict[str, FileFacts]]:
    """Contents of the files written in scratch copies: by a copy's name, then by the file's."""
    found: dict[str, dict[str, FileFacts]] = {name: {} for name in copies}
    tensors: dict[str, tuple[str, str]] = {}
    for run, copied in copies.items():
        for path in copied.written():
            found[run][str(path)] = _facts(copied.folder / path)
            if path.suffix in TENSORS:
                tensors[str(copied.folder / path)] = (run, str(path))
    for full, entries in (_entries(list(tensors)) if tensors else {}).items():
        run, name = tensors[full]
        here = str(copies[run].folder)  # another for each run
        found[run][name] = FileFacts(
            entries={key.replace(here, "."): _without(here, value) for key, value in entries.items()}
        )
    return found


def _without(folder: str, value: Any) -> Any:
    return value.replace(folder, ".") if isinstance(value, str) else value


def _facts(path: Path) -> FileFacts:
    with path.open("rb") as file:
        data = file.read(TEXT_MB << 20)
    digest = hashlib.blake2b(data, digest_size=8).hexdigest()
    try:
        lines = data.decode("utf-8").splitlines() if b"\0" not in data else None
    except UnicodeDecodeError:
        lines = None
    return FileFacts(lines=lines[:LINES] if lines is not None else None, digest=digest)


def _entries(paths: list[str]) -> dict[str, Any]:
    """The named values in files of tensors, read by a process of its own, as that needs PyTorch."""
    command = [sys.executable, "-P", "-m", "bftrainer.elastic.recorded.tensor_files"]
    try:
        done = subprocess.run(
            command, input=json.dumps(paths), text=True, capture_output=True, timeout=READ_S, check=True
        )
        found: dict[str, Any] = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return {}
    return found
