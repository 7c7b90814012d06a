"""Stand-ins for Slurm's commands on PATH: they do on demand what a real Slurm does not."""

from __future__ import annotations

import os
from pathlib import Path

from bftrainer.schedulers.slurm.pilot import SlurmPilotJob
from bftrainer.schedulers.slurm.scheduler import SlurmScheduler
from tests.support.slurm_samples import DATA, MARK, PILOT_JOB

SCONTROL = DATA / "22.05" / "scontrol.txt"
SQUEUE = DATA / "22.05" / "squeue.txt"
DOWN = (DATA / "24.11" / "down.err").read_text().strip()
ANSWERS = 'if [ "$*" = "--local show config" ]; then /bin/cat config; exit; fi\n'


class Clock:
    time = 1795289515.0
    behind = 0.0

    def now(self) -> float:
        return self.time

    def behind_s(self) -> float:
        return self.behind


class Commands:
    """A folder on PATH with stand-ins for Slurm's commands, which note how they are called."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.clock = folder, Clock()
        self.configure()
        self.set("scontrol", f"{ANSWERS}cat > /dev/null; cat {SCONTROL}")
        self.show(SQUEUE.read_text())
        self.set("sbatch", "cat > script; echo 4711")
        self.set("scancel", "")

    def set(self, name: str, body: str) -> None:
        path = self.folder / name
        path.write_text(f'#!/bin/sh\ncd {self.folder}\necho "$0 $*" >> calls\nenv > {name}.env\n{body}\n')
        path.chmod(0o755)

    def configure(
        self, private: str = "none", slurm_user: str = "slurm(64030)", version: str = "22.05.8"
    ) -> None:
        """What scontrol says of the configuration."""
        lines = ("Configuration data as of 2026-11-21T03:45:18", f"PrivateData             = {private}")
        lines += (f"SLURM_VERSION           = {version}",)
        (self.folder / "config").write_text(
            "\n".join([*lines, f"SlurmUser               = {slurm_user}", ""])
        )

    def show(self, queue: str) -> None:
        """What squeue shows; the mark is the one that it is called with."""
        (self.folder / "queue").write_text(queue)
        self.set("squeue", f'mark=$(echo "$SQUEUE_FORMAT" | cut -c1-16); sed "s/^{MARK}/$mark/" queue')

    def calls(self) -> list[str]:
        lines = (self.folder / "calls").read_text().splitlines()
        return [line.removeprefix(f"{self.folder}/") for line in lines]

    def scheduler(self, job: SlurmPilotJob = PILOT_JOB, **environ: str) -> SlurmScheduler:
        path = f"{self.folder}:{os.environ['PATH']}"
        return SlurmScheduler(
            job,
            command_timeout_s=5.0,
            claim_patience_s=120.0,
            clock=self.clock,
            most_bytes=1_000_000,
            environ={"PATH": path, **environ},
        )
