"""`bftrainer record` on an emulated LSF, while its daemons stop answering for a while."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from bftrainer.traces.logs import load
from lsf.emulator.emulator import Emulator
from tests.support.lsf_site import begun
from tests.support.waiting import until


def lines(folder: Path) -> str:
    return "".join(path.read_text() for path in folder.glob("*.jsonl"))


def test_idle_hosts_are_recorded_and_read(tmp_path: Path) -> None:
    folder = tmp_path / "idle"
    words = [sys.executable, "-m", "bftrainer", "record", str(folder), "--scheduler", "lsf", "--every", "1"]
    with Emulator(hosts=3, cycle_s=0.2) as emulator:
        job = emulator.main_job(seconds=3600.0, only=["h2"])
        begun(emulator, job)
        environ = {**os.environ, **emulator.env, "XDG_CONFIG_HOME": str(tmp_path)}
        with subprocess.Popen(words, env=environ) as process:
            until(lambda: '"job":"h2"' in lines(folder), "a snapshot with the main job")
            emulator.manners(down=1_000)
            until(lambda: '"failed":true' in lines(folder), "a poll without an answer")
            emulator.manners(down=0)
            emulator.run("bkill", str(job), check=True)
            until(lambda: '"idle":"h[1-3]"' in lines(folder), "a snapshot without the main job")
            process.send_signal(signal.SIGTERM)
        assert process.returncode == 0
    log = load(folder)
    assert log.nodes == {"h1", "h2", "h3"} and log.broken == 0
    starts = {interval.node: interval.start for interval in log.intervals}
    assert starts["h1"] == log.begin and log.begin < starts["h2"] <= log.end
    assert "without an answer" in log.notes[1]
    assert "of 3 nodes are in use" in log.notes[2], "as jobstat says"
    assert "0.0 are blocked" in log.notes[3]
