"""Who writes a study's storage, and what is told of it."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from bftrainer.api.callers import Caller
from bftrainer.daemon.answers.submissions import Submissions
from bftrainer.daemon.clock import WallClock
from bftrainer.daemon.studies import mirrors
from bftrainer.daemon.studies.mirrors import Mirrors
from bftrainer.errors import BftrainerError
from bftrainer.settings.live import LiveSettings
from bftrainer.settings.values import Settings
from bftrainer.telemetry.telemetry import Telemetry
from tests.support.studies import TEXT

URL = "postgresql://ann:secret@host/db"
HELPER = """
import json, sys
print(json.dumps({"study": 1, "name": "", "error": "it is down"}))
print(json.dumps({"study": 2, "name": "s", "error": ""}), flush=True)
sys.stdin.read()
"""


def settings(folder: Path, **more: Any) -> LiveSettings:
    return LiveSettings(Settings(state_dir=folder, **more))


def test_a_sites_daemon_writes_into_no_storage_of_a_user(tmp_path: Path) -> None:
    own = settings(tmp_path, mode="site", exec_prefix=("sudo", "-u", "{user}"), socket=Path("/run/d.sock"))
    copies = Mirrors(own, WallClock())
    copies.want()
    assert not copies._wanted.is_set()
    view = copies.view(1, "s", URL)
    assert view is not None
    assert view["error"].endswith("keep it up to date: bftrainer study mirror s")
    assert "secret" not in view["url"]


def test_what_the_helper_says_of_each_storage_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies = Mirrors(settings(tmp_path), WallClock())
    monkeypatch.setattr(mirrors, "command", lambda socket: (sys.executable, "-c", HELPER))

    async def story() -> None:
        running = asyncio.create_task(copies.run())
        copies.want()
        async with asyncio.timeout(30):
            while not (copies.view(2, "s", URL) or {})["name"]:
                await asyncio.sleep(0.01)
        running.cancel()
        await copies.close()
        assert copies._process is not None and copies._process.returncode == 0, "nothing is left behind"

    asyncio.run(story())
    down, up = copies.view(1, "s", URL), copies.view(2, "s", URL)
    assert down is not None and up is not None
    assert (down["error"], down["at"]) == ("it is down", down["since"])
    assert (up["error"], up["name"]) == ("", "s")
    assert copies.view(3, "s", URL) == {"url": up["url"], "name": "", "at": None, "since": None, "error": ""}
    assert copies.view(3, "s", None) is None


def test_a_storage_among_the_daemons_own_files_is_refused(tmp_path: Path) -> None:
    import yaml

    desk = Submissions(settings(tmp_path), Telemetry(), lambda user: 0)
    for path in (tmp_path / "bftrainer.db", tmp_path / "a" / ".." / "pilots" / "x.db"):
        text = yaml.safe_dump({**TEXT, "storage": f"sqlite:///{path}"})
        with pytest.raises(BftrainerError, match="is in the daemon's state_dir"):
            asyncio.run(desk.read_study(Caller("ann", 1001), text, "s.yaml", "/work", (0, 0)))
    desk.close()


def test_no_path_of_a_user_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Links may be many, and a file system may not answer: whatever a submission names stays letters."""
    import yaml

    folder = tmp_path / "users"
    folder.mkdir()
    (folder / "0").symlink_to("1")
    theirs = f"{folder}/0/x"
    trainer = {**TEXT["trainer"], "workdir": theirs, "checkpoint": {"dir": f"{theirs}/ckpt"}}
    study = yaml.safe_dump({**TEXT, "trainer": trainer, "storage": f"sqlite:///{theirs}/x.db"})
    spec = yaml.safe_dump({"name": "one", **trainer, "command": ["true"]})
    desk = Submissions(settings(tmp_path / "state"), Telemetry(), lambda user: 0)
    looked: list[str] = []
    for name in ("stat", "lstat", "readlink", "open", "listdir", "access"):
        real = getattr(os, name)

        def look(path: Any, *more: Any, real: Any = real, **named: Any) -> Any:
            if str(path).startswith(str(folder)):
                looked.append(f"{real.__name__} {path}")
            return real(path, *more, **named)

        monkeypatch.setattr(os, name, look)
    asyncio.run(desk.read_study(Caller("ann", 1001), study, "s.yaml", theirs, (0, 0)))
    asyncio.run(desk.read(Caller("ann", 1001), spec, "t.yaml", theirs))
    desk.close()
    assert looked == []
