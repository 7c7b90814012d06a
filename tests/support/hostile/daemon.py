"""`bftrainer daemon`, whose event loop is measured, beside a main scheduler with jobs at will.

    python -m tests.support.hostile.daemon FOLDER OPTION...

OPTION... are those of `bftrainer daemon --scheduler local`. In FOLDER lie `jobs.jsonl` and `started.jsonl`,
see `main_jobs`, and `turns.jsonl`, see `turns`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from bftrainer import cli
from bftrainer.schedulers.local import make
from bftrainer.schedulers.shared.context import Context
from tests.support.hostile.main_jobs import MainJobs
from tests.support.hostile.turns import measure

JOBS, STARTED, TURNS = "jobs.jsonl", "started.jsonl", "turns.jsonl"


def main(folder: Path, *options: str) -> None:
    """Run the daemon as its command line does."""
    local = make.make

    def with_main_jobs(context: Context) -> MainJobs:
        return MainJobs(local(context), (folder / JOBS).open(), folder / STARTED)

    make.make = with_main_jobs  # type: ignore[assignment]
    measure(folder / TURNS)
    sys.argv = ["bftrainer", "daemon", "--scheduler", "local", *options]
    cli.main()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
