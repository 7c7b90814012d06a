"""The folder of a daemon's state: which users can read it."""

from __future__ import annotations

from pathlib import Path

import pytest

from bftrainer.daemon.lock import make_state_dir
from bftrainer.errors import BftrainerError


def test_a_sites_state_is_closed_to_others(tmp_path: Path) -> None:
    make_state_dir(tmp_path / "a" / "b", private=True)
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700
    (tmp_path / "open").mkdir(mode=0o755)
    (tmp_path / "open").chmod(0o750)
    make_state_dir(tmp_path / "open", private=False)
    with pytest.raises(BftrainerError, match=r"is open to others \(mode 750\).*chmod 700"):
        make_state_dir(tmp_path / "open", private=True)
    (tmp_path / "file").touch()
    with pytest.raises(BftrainerError, match="take another"):
        make_state_dir(tmp_path / "file", private=False)
