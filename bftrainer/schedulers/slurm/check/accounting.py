"""Reads main jobs from sacct, Slurm's accounting: a check of what polls have seen."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from bftrainer.errors import SchedulerError
from bftrainer.model.main_jobs import Accounted
from bftrainer.ports import Clock
from bftrainer.schedulers.shared.command import CommandOutput
from bftrainer.schedulers.shared.instance import NAME
from bftrainer.schedulers.slurm import values

NONE_KEPT = "sacct shows no job of this time: is there slurmdbd (AccountingStorageType)?"


async def ask(
    run: Callable[[list[str]], Awaitable[CommandOutput]],
    apart: Callable[[Callable[[], Accounted]], Awaitable[Accounted]],
    clock: Clock,
    since: float,
) -> Accounted:
    """Return what sacct says of main jobs that started since then, or that slurmdbd is missing. `run`
    runs a command, `apart` reads what it printed in a thread."""
    try:
        done = await run(command(clock.now() - since))
    except SchedulerError as error:
        return Accounted(why=f"sacct: {error}")
    since += clock.behind_s()  # Slurm tells times of the machine's clock
    return await apart(lambda: read(done.out, done.code, done.words, since))


def command(seconds: float) -> list[str]:
    """Asks for the jobs of all users in the last `seconds`."""
    since = f"--starttime=now-{max(1.0, seconds):.0f}"
    fields = "--format=Start,JobID,JobName"  # names last: they may hold anything
    return [
        "sacct",
        "--allusers",
        "--allocations",
        "--noheader",
        "--parsable2",
        since,
        "--endtime=now",
        fields,
    ]


def read(printed: str, code: int, words: str, since: float) -> Accounted:
    """Parse what `command` printed, with its exit code and message: the main jobs started since then."""
    if code != 0:
        return Accounted(why=f"sacct: {words}")
    rows = [line.split("|", 2) for line in printed.splitlines()]
    known = [(values.moment(row[0]), row[2]) for row in rows if len(row) == 3]
    if not known:
        return Accounted(why=NONE_KEPT)
    return Accounted(
        started=sum(at is not None and at >= since and not NAME.fullmatch(name) for at, name in known)
    )
