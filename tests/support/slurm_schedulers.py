"""The Slurm scheduler on a testbed: made for a test, run, and polled until something is true."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from bftrainer.errors import SchedulerError
from bftrainer.model.machine import Snapshot
from bftrainer.schedulers.shared.pilot_job import Template
from bftrainer.schedulers.slurm.pilot import SlurmPilotJob
from bftrainer.schedulers.slurm.scheduler import SlurmScheduler
from slurm.testbed import Testbed

LONG_S = 60.0  # for Slurm to do what it does in seconds, on a busy machine
SLEEPER = "#!/bin/sh\nexec sleep 600\n"


class Clock:
    def now(self) -> float:
        return time.time()

    def behind_s(self) -> float:
        return 0.0


def schedulers(
    bed: Testbed, folder: Path, *, looks_as: str | None = None, **others: object
) -> SlurmScheduler:
    """A scheduler whose pilots do nothing. It polls as root, to whom Slurm shows all, or as a user."""
    template = folder / "sleeper.sh.j2"
    template.write_text(SLEEPER)
    job = SlurmPilotJob(
        **{  # type: ignore[arg-type]
            "instance": "0a1b2c3d",
            "template": Template(template),
            "python": "python",
            "daemon": "127.0.0.1:1",
            "orphan_s": 60.0,
            "log_dir": folder,
            "max_s": 86_400.0,
            "partition": "backfill",
            **others,
        }
    )
    environ = bed.env | ({"PATH": f"{commands_of(looks_as, folder)}:{bed.env['PATH']}"} if looks_as else {})
    return SlurmScheduler(job, command_timeout_s=20.0, claim_patience_s=120.0, clock=Clock(), environ=environ)


def commands_of(user: str, folder: Path) -> Path:
    """A folder with the commands that look at Slurm, which run as a user."""
    place = folder / "commands"
    place.mkdir()
    for name in ("scontrol", "squeue", "sacctmgr"):
        become = f"exec setpriv --reuid={user} --regid={user} --clear-groups"
        (place / name).write_text(f'#!/bin/sh\n{become} {shutil.which(name)} "$@"\n')
        (place / name).chmod(0o755)
    return place


def run(scheduler: SlurmScheduler, scenario: Callable[[SlurmScheduler], Coroutine[Any, Any, object]]) -> None:
    asyncio.run(_whole(scheduler, scenario))


async def _whole(
    scheduler: SlurmScheduler, scenario: Callable[[SlurmScheduler], Coroutine[Any, Any, object]]
) -> None:
    await scenario(scheduler)
    await scheduler.close()


async def until(scheduler: SlurmScheduler, condition: Callable[[Snapshot], bool]) -> Snapshot:
    """Poll until something is true; failed polls do not count."""
    deadline = time.monotonic() + LONG_S
    snapshot = None
    while time.monotonic() < deadline:
        with contextlib.suppress(SchedulerError):
            snapshot = await scheduler.poll()
            if condition(snapshot):
                return snapshot
        await asyncio.sleep(0.05)
    raise AssertionError(f"not within {LONG_S:g} s; the last look: {snapshot}")
