"""`bftrainer lsf check` on an emulated LSF."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from lsf.emulator.emulator import Emulator
from tests.support.lsf_site import begun
from tests.support.waiting import LONG_S


def checked(emulator: Emulator, folder: Path, **settings: str) -> tuple[int, dict[str, list[dict[str, str]]]]:
    """The exit code, and what was found by check."""
    given = {"lsf_bin": str(emulator.bin), "lsf_queue": "killable", "lsf_mode": "window", **settings}
    environ = {**emulator.env, **{f"BFTRAINER_{key.upper()}": value for key, value in given.items()}}
    environ |= {"XDG_CONFIG_HOME": str(folder), "BFTRAINER_SITE_CONFIG": str(folder / "none")}
    words = [sys.executable, "-m", "bftrainer", "lsf", "check", "--json", "--state-dir", str(folder)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=LONG_S, env=environ)
    found: dict[str, list[dict[str, str]]] = {}
    for one in json.loads(done.stdout):
        found.setdefault(one["check"], []).append(one)
    return done.returncode, found


def test_a_check_says_what_it_understood_and_changes_nothing(tmp_path: Path) -> None:
    with Emulator(hosts=3, cycle_s=0.2) as emulator:
        begun(emulator, emulator.main_job(seconds=3600.0, only=["h2"]))
        before = emulator.jobs()
        code, found = checked(emulator, tmp_path)
        assert code == 0, found
        assert found["lsf"][0]["found"].startswith("version 10.1.0.15, cluster emulated")
        assert "3 hosts (" in found["lsf bhosts"][0]["found"]
        assert found["lsf bjobs"][0]["found"].startswith("1 jobs (1 RUN)")
        assert {one["level"] for checks in found.values() for one in checks} == {"ok"}, found
        assert [job["id"] for job in emulator.jobs()] == [job["id"] for job in before]
        code, found = checked(emulator, tmp_path, lsf_mode="preempt")
        assert {one["level"] for checks in found.values() for one in checks} == {"ok"}, found
        code, found = checked(emulator, tmp_path, lsf_queue="none")
        assert code == 1
        assert "there is no queue 'none'" in found["lsf bqueues"][-1]["found"]


def test_the_job_of_a_pilot_is_shown(tmp_path: Path) -> None:
    with Emulator(hosts=2) as emulator:
        begun(emulator, emulator.main_job(seconds=3600.0, only=["h2"]))
        environ = {**emulator.env, "BFTRAINER_SCHEDULER": "lsf", "BFTRAINER_LISTEN": "10.0.0.1:4000"}
        environ |= {"BFTRAINER_LSF_BIN": str(emulator.bin), "XDG_CONFIG_HOME": str(tmp_path)}
        words = [sys.executable, "-m", "bftrainer", "pilot", "--dry-run", "--lsf-queue=killable"]
        shown = {
            host: subprocess.run(
                [*words, f"--node={host}"],
                capture_output=True,
                text=True,
                check=True,
                timeout=LONG_S,
                env=environ,
            )
            for host in ("h1", "h2")
        }
    line, *script = shown["h1"].stdout.splitlines()
    assert line.startswith("BFTRAINER_PILOT_SECRET='(secret)' ")
    assert "-q killable -n 42 -R 'span[hosts=1]' -m h1 -W 240 -rn" in line
    assert any("--node h1 --tag 0000" in one for one in script)
    assert not any("(secret)" in one for one in script)
    assert shown["h1"].stderr == ""
    assert "h2 is not free: job 101" in shown["h2"].stderr


def test_a_check_without_lsf_says_so(tmp_path: Path) -> None:
    with Emulator(hosts=1) as emulator:
        code, found = checked(emulator, tmp_path, lsf_bin=str(tmp_path))
    assert code == 1
    assert "cannot run" in found["lsf lsid"][0]["found"]
