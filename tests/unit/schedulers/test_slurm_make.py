"""Slurm as the settings have it: what is made at the start."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bftrainer.errors import BftrainerError
from bftrainer.schedulers.slurm.make import make
from bftrainer.settings.sources import load


def context(folder: Path, logs: Path) -> Any:
    given = {"state_dir": folder, "pilot_log_dir": logs, "scheduler": "slurm"}
    own = load(given, environ={"XDG_CONFIG_HOME": "/none", "BFTRAINER_SITE_CONFIG": "/none"})
    return SimpleNamespace(settings=own, agents_at="127.0.0.1:1", clock=None)


def test_pilots_logs_lie_where_the_settings_say_for_their_user_only(tmp_path: Path) -> None:
    make(context(tmp_path, tmp_path / "shared" / "logs"))
    assert (tmp_path / "shared" / "logs").stat().st_mode & 0o777 == 0o700
    assert not (tmp_path / "logs").exists()


def test_a_folder_for_logs_that_cannot_be_is_told_with_its_setting(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(
        BftrainerError, match=r"pilot_log_dir .*file/logs: Not a directory. Name another place"
    ):
        make(context(tmp_path, tmp_path / "file" / "logs"))
