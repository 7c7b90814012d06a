"""Measures the processor time of a user's command, from its start to its end.

    python benchmarks/commands.py [--repeat 9]

Starts a daemon (local scheduler) with a few trainers, and runs each command `--repeat` times. Prints the
least and the median CPU time (s) of its process, beside those of a Python that does nothing: other work on
the machine makes all of them longer.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from bftrainer.demo.session import DemoSession

ROOT = Path(__file__).parents[1]
SPECS = [ROOT / "trainers" / f"{name}.yaml" for name in ("digits", "digits-gentle", "spirals")]
TAB = "_BFTRAINER_COMPLETE"


def tab(*words: str) -> dict[str, str]:
    """The environment in which a shell asks for what completes the last word."""
    return {TAB: "bash_complete", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}


def cpu_s(words: list[str], environ: dict[str, str]) -> float:
    """The CPU time of one run of Python.

    Raises:
        CalledProcessError: it failed.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, *words]
    done = subprocess.run(command, env={**os.environ, **environ}, check=False, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise subprocess.CalledProcessError(done.returncode, command, done.stdout, done.stderr)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeat", type=int, default=9)
    args = parser.parse_args()
    session = DemoSession(["--scheduler", "local", "--nodes", "1"], main_jobs=True)
    try:
        session.submit(SPECS)
        there = {"BFTRAINER_STATE_DIR": str(session.state_dir)}
        for title, words, environ in (
            ("python alone", ["-c", "pass"], {}),
            ("bftrainer list", ["-m", "bftrainer", "list"], {}),
            ("bftrainer queue", ["-m", "bftrainer", "queue"], {}),
            ("Tab: a command", ["-m", "bftrainer"], tab("bftrainer", "li")),
            ("Tab: a trainer", ["-m", "bftrainer"], tab("bftrainer", "show", "dig")),
        ):
            found = sorted(cpu_s(words, {**there, **environ}) for _ in range(args.repeat))
            print(
                f"{title}: least {found[0]:.2f} s, median {statistics.median(found):.2f} s of CPU", flush=True
            )
    finally:
        session.close()


if __name__ == "__main__":
    main()
