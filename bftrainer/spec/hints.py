"""Warns of what is valid in a spec and almost surely a mistake. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from itertools import pairwise
from pathlib import PurePath

from bftrainer.messages.hints import SHELL_STAYS, STARTS_PROCESSES
from bftrainer.model.trainer import TrainerSpec

STARTERS = {"accelerate", "deepspeed", "horovodrun", "mpiexec", "mpirun", "srun", "torchrun"}
"""Programs that start processes of their own."""
MODULES = {"torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch"}
LINES = ("-c", "-lc")
"""Options of a shell before its command line."""
SHELLS = {"bash", "dash", "ksh", "sh", "zsh"}


def hint(spec: TrainerSpec) -> str:
    """Return the hint to a user, once the trainer is submitted; empty if none."""
    if found := starter(spec.command):
        return STARTS_PROCESSES.say(program=found)
    if _keeps_shell(spec.command):
        return SHELL_STAYS.say()
    return ""


def starter(command: Sequence[str]) -> str:
    """The program in a command that starts processes of its own; empty if there is none.

    It may stand behind others (`env A=1 torchrun ...`) or in a shell's line; what follows a script or a
    module are its arguments.
    """
    words = iter(_words(command))
    for word in words:
        program = PurePath(word).name
        if program in STARTERS:
            return program
        if word == "-m":
            module = next(words, "")
            return module if module in MODULES else ""
        if word.endswith(".py"):
            return ""
    return ""


def _words(command: Sequence[str]) -> list[str]:
    """The words of a command, and those of a shell's line in it."""
    found: list[str] = []
    for before, word in pairwise(("", *command)):
        found += split(word) if before in LINES else [word]
    return found


def split(line: str) -> list[str]:
    """The words of a line for a shell, without what separates commands."""
    parser = shlex.shlex(line, posix=True, punctuation_chars=True)
    parser.whitespace_split = True
    try:
        return [word for word in parser if word.strip("();<>|&")]
    except ValueError:  # an open quotation mark: the shell will say so
        return line.split()


def _keeps_shell(command: Sequence[str]) -> bool:
    """Return whether a command is a line for a shell that stays between the agent and the script."""
    if not command or PurePath(command[0]).name not in SHELLS:
        return False
    lines = [word for option, word in pairwise(command) if option in LINES]
    return bool(lines) and "exec " not in lines[0]
