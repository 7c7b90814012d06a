"""A Slurm testbed as `benchmarks.testbeds.harvest` uses one: its main jobs, its pilots, and what it logs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from ClusterShell.NodeSet import NodeSet

from benchmarks.testbeds.workload import MainJob
from slurm.testbed.bed import Testbed
from slurm.testbed.load import Load

POLLED = ("scontrol", "squeue")
SLOW = """\
#!/bin/sh
sleep {seconds}
{program} "$@"
code=$?
sleep {seconds}
exit $code
"""


def occupants(queue: str) -> dict[str, str]:
    """Return node -> main job (`main-7`) from squeue's lines of name and nodes."""
    found = {}
    for row in queue.splitlines():
        name, nodes = row.split(maxsplit=1)
        found.update(dict.fromkeys(NodeSet(nodes), "-".join(name.split("-")[:2])))
    return found


class SlurmMachine:
    """A testbed that runs. With `slow_polls_s` Slurm takes that much longer to answer the two commands of
    each poll of the daemon."""

    name = "Slurm"

    def __init__(self, bed: Testbed, *, slow_polls_s: float = 0, share: str = "node") -> None:
        self._bed, self._slow_polls_s, self._share = bed, slow_polls_s, share

    @property
    def directory(self) -> Path:
        """Everything of it lies there."""
        return self._bed.plan.directory

    @property
    def nodes(self) -> int:
        """Return how many it has."""
        return len(self._bed.plan.nodes)

    def load(self, jobs: Sequence[MainJob]) -> Load:
        """Main jobs for it."""
        return Load(self._bed, jobs)

    def settings(self) -> dict[str, object]:
        """Return the daemon's settings for it."""
        plan = self._bed.plan
        found: dict[str, object] = {
            "scheduler": "slurm",
            "slurm_partition": "backfill",
            "slurm_mode": "preempt" if plan.preemption else "window",
            "slurm_watch": ",".join(plan.partitions),
        }
        found |= {"harvest": "gpus", "share": self._share} if plan.parts else {}
        return found | (
            {"slurm_qos": "bftrainer", "slurm_account": "bftrainer"} if plan.heterogeneous else {}
        )

    def environ(self) -> Mapping[str, str]:
        """Return the variables that the daemon's environment needs beside the usual."""
        found = {"SLURM_CONF": str(self._bed.plan.conf)}
        if self._slow_polls_s:
            found["PATH"] = f"{self._slow_commands()}:{os.environ.get('PATH', os.defpath)}"
        return found

    def _slow_commands(self) -> Path:
        """A folder with scontrol and squeue that take longer: half before and half after they ask."""
        place = self.directory / "slow"
        place.mkdir()
        for name in POLLED:
            program = place / name
            real = shutil.which(name, path=self._bed.env.get("PATH"))
            seconds = self._slow_polls_s / len(POLLED) / 2
            program.write_text(SLOW.format(program=real, seconds=seconds), "utf-8")
            program.chmod(0o755)
        return place

    def logs(self) -> dict[str, str]:
        """Return slurmctld's log so far."""
        return {"slurmctld": (self.directory / "log" / "slurmctld.log").read_text("utf-8", "replace")}

    def pilots(self) -> str:
        """The pilots that are left, in words; "" for none."""
        return self._bed.run(["squeue", "-h", "-p", "backfill"]).stdout.strip()

    def occupants(self) -> dict[str, str]:
        """Node -> the main job on it."""
        return occupants(self._bed.run(["squeue", "-h", "-t", "R", "-p", "batch", "-o", "%j %N"]).stdout)
