"""Runs programs with --help, each in a fork of one process that has imported PyTorch for all of them.

    python tests/support/explain.py PROGRAM.py ... MODULE ...

Prints nothing of those that explain themselves; of the others, all that they print. Exits with their number.
"""

from __future__ import annotations

import os
import runpy
import sys
import tempfile
from importlib import import_module
from pathlib import Path

FOR_ALL = ("torch", "matplotlib", "bftrainer.elastic.loop.run")
"""Most programs import these: it is done once."""


def explain(program: str) -> None:
    """Be the program, as if `python PROGRAM --help` or `python -m MODULE --help` had been typed."""
    sys.argv = [program, "--help"]
    if program.endswith(".py"):
        sys.path[0] = str(Path(program).parent)
        runpy.run_path(program, run_name="__main__")
    else:
        sys.path[0] = str(Path.cwd())
        runpy.run_module(program, run_name="__main__", alter_sys=True)


def explains_itself(program: str) -> bool:
    """Whether it does, with exit code 0."""
    with tempfile.TemporaryFile("w+") as said:
        if not (child := os.fork()):
            os.dup2(said.fileno(), 1)
            os.dup2(said.fileno(), 2)
            explain(program)
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        said.seek(0)
        text = said.read()
    fine = code == 0 and "usage:" in text
    if not fine:
        print(f"{program} --help: exit code {code}\n{text}")
    return fine


if __name__ == "__main__":
    for name in FOR_ALL:
        import_module(name)
    sys.exit(sum(not explains_itself(program) for program in sys.argv[1:]))
