"""`bftrainer record` at a real Slurm that nothing has been set up on: what is idle."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from bftrainer.traces.logs import load
from slurm.testbed import Testbed
from tests.support.waiting import until


def recorded(folder: Path) -> str:
    return "".join(path.read_text() for path in folder.glob("*.jsonl"))


def test_idle_nodes_of_slurm_are_recorded_and_read(tmp_path: Path) -> None:
    folder = tmp_path / "idle"
    with Testbed(nodes=2) as bed:
        words = [sys.executable, "-m", "bftrainer", "record", str(folder), "--every", "1"]
        environ = {**os.environ, **bed.env, "XDG_CONFIG_HOME": str(tmp_path)}
        with subprocess.Popen(words, env=environ) as process:
            until(lambda: '"idle":"n[1-2]"' in recorded(folder), "both nodes are idle")
            job = [
                "sbatch",
                "--parsable",
                "-w",
                "n2",
                "--exclusive",
                "--output=/dev/null",
                "--wrap",
                "sleep 600",
            ]
            number = bed.run(job).stdout.strip()
            until(lambda: '"idle":"n1"' in recorded(folder), "n2 is in use")
            bed.run(["scancel", number])
            until(lambda: recorded(folder).count('"idle":"n[1-2]"') > 1, "n2 is idle again")
            process.send_signal(signal.SIGTERM)
        assert process.returncode == 0
    log = load(folder)
    assert log.nodes == {"n1", "n2"} and log.broken == 0
    assert sorted(i.node for i in log.intervals) == ["n1", "n2", "n2"]
