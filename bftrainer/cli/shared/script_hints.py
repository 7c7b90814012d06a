"""Hints from a script's imports, read on the user's own machine when a spec is submitted."""

from __future__ import annotations

import re
from pathlib import Path

from bftrainer.elastic.programs.preload import imports_of
from bftrainer.files import open_regular
from bftrainer.messages.diagnostic import Diagnostic
from bftrainer.messages.hints import (
    NO_CALLBACK_PLACE,
    NO_CALLBACK_STEPS,
    NO_RUN,
    NO_WORK_TOLD,
    SHELL_STARTS,
)
from bftrainer.model.trainer import TrainerSpec
from bftrainer.spec.hints import split, starter

_TRAINERS = {"transformers", "trl"}
_LIGHTNING = {"lightning", "lightning.pytorch", "pytorch_lightning"}
_OURS = re.compile(r"^\s*(from|import)\s+bftrainer\b", re.MULTILINE)
READ = 65536
"""Bytes of a shell script that are read, at most."""


def hint(spec: TrainerSpec) -> str:
    """Return what its user should know of a script that does not use what bftrainer has for it, alone or
    beside a framework; empty if nothing. A script that cannot be read is the worker's to tell of."""
    if told := _starter_in_shell_script(spec):
        return told
    script = next((word for word in spec.command[1:] if word.endswith(".py")), "")
    path = Path(spec.workdir, script)
    found = imports_of(path) if script else {}
    if any(name.partition(".")[0] == "bftrainer" for name in found) or _names_us(path):
        return ""
    if spec.launcher == "native" and spec.n_max > 1 and found:
        return NO_RUN.say(script=script)
    if spec.launcher == "torchrun" and spec.samples is not None and found:
        return NO_WORK_TOLD.say(script=script)
    framework = _framework(found)
    if spec.launcher != "torchrun" or spec.n_min == spec.n_max or framework is None:
        return ""
    return framework.say(script=script)


def _begin(script: Path) -> str:
    """The first lines of a script; empty if it cannot be read, which is the worker's to tell of."""
    try:
        with open_regular(script) as file:
            return file.read(READ).decode(errors="replace")
    except OSError:
        return ""


def _names_us(script: Path) -> bool:
    """Return whether a script imports something of bftrainer anywhere, such as under an `if`."""
    return _OURS.search(_begin(script)) is not None


def _starter_in_shell_script(spec: TrainerSpec) -> str:
    """Return the hint on a shell script that starts processes which know nothing of other nodes' ones."""
    name = next((word for word in spec.command if word.endswith((".sh", ".bash"))), "")
    lines = _begin(Path(spec.workdir, name)).splitlines()
    found = next((program for line in lines if (program := starter(split(line)))), "")
    if not found:
        return ""
    return SHELL_STARTS.say(name=name, program=found)


def _framework(imports: dict[str, list[str]]) -> Diagnostic | None:
    """Return the hint on a script with a framework's Trainer; None where it has none."""
    for name, taken in imports.items():
        if name.partition(".")[0] in _TRAINERS and any(word.endswith("Trainer") for word in taken):
            return NO_CALLBACK_STEPS
    return NO_CALLBACK_PLACE if _LIGHTNING & imports.keys() else None
