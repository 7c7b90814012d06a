"""The demonstration's end: it tells strays from processes that are dying, and leaves none behind."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from bftrainer.demo import demo
from bftrainer.demo.demo import Demo


def over(folder: Path) -> Demo:
    """A demonstration in a folder, whose daemon has ended."""
    found = Demo.__new__(Demo)
    found._state, found._keep, found._log = folder, None, (folder / "daemon.log").open("wb")
    found._daemon = subprocess.Popen(["true"])
    found._daemon.wait()
    return found


def of(folder: Path, *command: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, env={"PATH": "/bin:/usr/bin", "BELONGS_TO": str(folder)})


def test_who_is_about_to_end_is_no_stray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dying = of(tmp_path, "sh", "-c", "sleep 0.5 # until then")
    assert over(tmp_path)._settled_strays() == []
    dying.wait()
    monkeypatch.setattr(demo, "DYING_S", 0.2)
    stays = of(tmp_path, "sleep", "1000")
    try:
        assert over(tmp_path)._settled_strays() == [stays.pid]
    finally:
        stays.kill()
        stays.wait()


def test_one_that_ends_by_itself_saves_no_other_stray(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    stays = of(tmp_path, "sleep", "1000")
    monkeypatch.setattr(Demo, "_strays", lambda _: [ended.pid, stays.pid])
    over(tmp_path).close()
    assert stays.wait(30) == -9
