"""`bftrainer daemon`, whose event loop is measured, beside a main scheduler with jobs at will.

    python -m tests.support.hostile.daemon FOLDER OPTION...

OPTION... are those of `bftrainer daemon --scheduler local`. In FOLDER lie `jobs.jsonl` and `started.jsonl`,
see `main_jobs`, and `turns.jsonl`, see `turns`. With a file `everyone` there, the daemon serves every
user of the machine as in mode site, though the local scheduler runs all their trainers as the daemon's.
"""

from __future__ import annotations

import sys
from pathlib import Path

from bftrainer import cli
from bftrainer.api.callers import Caller, Callers
from bftrainer.schedulers.local import make
from bftrainer.schedulers.shared.context import Context
from tests.support.hostile.main_jobs import MainJobs
from tests.support.hostile.turns import measure

JOBS, STARTED, TURNS, EVERYONE = "jobs.jsonl", "started.jsonl", "turns.jsonl", "everyone"


def main(folder: Path, *options: str) -> None:
    """Run the daemon as its command line does."""
    local = make.make

    def with_main_jobs(context: Context) -> MainJobs:
        return MainJobs(local(context), (folder / JOBS).open(), folder / STARTED)

    make.make = with_main_jobs  # type: ignore[assignment]
    if (folder / EVERYONE).exists():
        serve_everyone()
    measure(folder / TURNS)
    sys.argv = ["bftrainer", "daemon", "--scheduler", "local", *options]
    cli.main()


def serve_everyone() -> None:
    """Have the API serve users as a site's does."""
    known = Callers.known

    def of_site(self: Callers, uid: int) -> Caller:
        self._site = True
        return known(self, uid)

    Callers.known = of_site  # type: ignore[method-assign]


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
