"""The end of a demonstration: it tells strays from processes that are ending, and leaves none behind."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from bftrainer.demo import session
from bftrainer.demo.session import DemoSession, settled_strays, strays
from tests.support.waiting import until


def over(folder: Path) -> DemoSession:
    """A demonstration in a folder, whose daemon has ended."""
    found = DemoSession.__new__(DemoSession)
    found._state, found._keep, found._log = folder, None, (folder / "daemon.log").open("wb")
    found._daemon = subprocess.Popen(["true"])
    found._daemon.wait()
    found._page = None
    return found


def of(folder: Path, *command: str) -> subprocess.Popen[bytes]:
    """A process whose environment names the folder; the kernel shows that a moment after exec only."""
    started = subprocess.Popen(command, env={"PATH": "/bin:/usr/bin", "BELONGS_TO": str(folder)})
    until(lambda: started.pid in strays(folder), "the process with its environment", every_s=0.01)
    return started


def test_a_process_that_is_about_to_end_is_no_stray(tmp_path: Path) -> None:
    dying = of(tmp_path, "sh", "-c", "sleep 0.5 # until then")
    assert settled_strays(tmp_path, 10.0) == []
    dying.wait()
    stays = of(tmp_path, "sleep", "1000")
    try:
        assert settled_strays(tmp_path, 0.2) == [stays.pid]
    finally:
        stays.kill()
        stays.wait()


def test_one_that_ends_by_itself_saves_no_other_stray(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    stays = of(tmp_path, "sleep", "1000")
    monkeypatch.setattr(session, "strays", lambda _: [ended.pid, stays.pid])
    over(tmp_path).close()
    assert stays.wait(30) == -9
