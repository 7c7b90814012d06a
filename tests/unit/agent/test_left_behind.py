"""What a program starts in sessions of their own ends with it, on a node and on this machine as a cluster."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from bftrainer.schedulers.local.scheduler import _kill_session
from tests.support.processes import alive
from tests.support.waiting import until

ESCAPES = """
import os, sys, time
for n in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.setsid()
        open(f"{sys.argv[1]}/{os.getpid()}", "w").close()
        time.sleep(1000)
"""
LEADER = """
import os, signal, subprocess, sys
from bftrainer.agent.process import adopt_orphans, kill_adopted
adopt_orphans()
kept = subprocess.Popen(["sleep", "1000"])
subprocess.run([sys.executable, "-c", sys.argv[1], sys.argv[2]])
sys.stdin.readline()
kill_adopted({kept.pid})
print(kept.poll(), flush=True)
kept.kill()
"""
COUNT = 6


def leader(folder: Path) -> subprocess.Popen[str]:
    """A process that adopts orphans, and has some whose program has ended."""
    found = subprocess.Popen(
        [sys.executable, "-c", LEADER, ESCAPES, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    until(lambda: len(os.listdir(folder)) == COUNT, "all have begun")  # noqa: PTH208
    return found


def escaped(folder: Path) -> list[int]:
    return [int(entry.name) for entry in folder.iterdir() if alive(int(entry.name))]


def test_an_agent_ends_what_a_script_has_left_behind_and_nothing_else(tmp_path: Path) -> None:
    agent = leader(tmp_path)
    assert len(escaped(tmp_path)) == COUNT
    said, _ = agent.communicate("\n", timeout=60)
    assert said == "None\n", "the other child goes on"
    until(lambda: not escaped(tmp_path), "all have ended")


def test_a_pilot_on_this_machine_ends_with_all_that_came_from_it(tmp_path: Path) -> None:
    agent = leader(tmp_path)
    _kill_session(agent.pid)
    until(lambda: not escaped(tmp_path), "all have ended")
    assert agent.wait(60) < 0
