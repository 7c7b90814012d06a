"""What Slurm's commands printed on real machines, and the pilot job and job row that tests vary."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path

from bftrainer.schedulers.shared import pilot_job
from bftrainer.schedulers.shared.pilot_job import Template
from bftrainer.schedulers.slurm.pilot import SlurmPilotJob
from bftrainer.schedulers.slurm.rows import SlurmJobRow

DATA = Path(__file__).parents[1] / "unit" / "data" / "slurm"
MARK = "0123456789abcdef"  # of the recorded squeue


PILOT_JOB = SlurmPilotJob(
    instance="0a1b2c3d",
    template=Template(pilot_job.find("slurm-pilot.sh.j2")),
    python="/opt/py thon/bin/python",
    daemon="10.0.0.1:4000",
    orphan_s=60.0,
    log_dir=Path("/state/50%/logs"),
    max_s=86_400.0,
    partition="backfill",
    options=("--constraint=ib",),
)
MAIN_JOB = SlurmJobRow(
    id="1", tasks=1, partitions=("batch",), user="u", state="PENDING", start=None, end=None, limit_s=600.0,
    count=1, planned=(), nodes=(), required="", excluded="", features="", priority=5, reservation="", cpus=1,
    memory_mb=0, gpus=(), all_cpus=1, shares=False, reason="Resources", name="main",
)  # fmt: skip


def scontrol_22() -> str:
    """The parts of one answer that were recorded one by one, with times as they come with %s."""
    parts = [(DATA / "22.05" / f"scontrol-{what}.txt").read_text() for what in ("node", "res", "part")]
    return re.sub(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d",
        lambda m: f"{datetime.fromisoformat(m[0]).replace(tzinfo=UTC).timestamp():.0f}",
        "\n".join(parts),
    )


def scontrol_24() -> str:
    """What 24.11 says in JSON, in the words of `scontrol -o`."""
    nodes = json.loads((DATA / "24.11" / "scontrol-node.json").read_text())["nodes"]
    found = json.loads((DATA / "24.11" / "scontrol-res.json").read_text())["reservations"]
    lines = [
        f"NodeName={n['name']} Arch={n['architecture']} CPUTot={n['cpus']} "
        f"ActiveFeatures={','.join(n['active_features']) or '(null)'} Gres={n['gres'] or '(null)'} "
        f"OS={n['operating_system']}  RealMemory={n['real_memory']} State={'+'.join(n['state'])} "
        f"Partitions={','.join(n['partitions'])}  Reason={n['reason']}"
        for n in nodes
    ]
    lines += [
        f"ReservationName={r['name']} StartTime={r['start_time']['number']} "
        f"EndTime={r['end_time']['number']} Nodes={r['node_list']} "
        for r in found
    ]
    return "\n".join([*lines, (DATA / "22.05" / "scontrol-part.txt").read_text()])
