"""Checkpoints in folders where strangers write: what other libraries read and write there by names."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from bftrainer.elastic.attach import job
from bftrainer.elastic.process.refusal import RefusedError

CALLBACKS = {"lightning": (8,), "huggingface": ()}


@pytest.mark.parametrize("library", CALLBACKS)
def test_no_library_keeps_checkpoints_where_strangers_put_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: str
) -> None:
    """Lightning writes over what a link leads to, and older ones unpickle what they find."""
    callback = import_module(f"bftrainer.elastic.{library}").ElasticCallback
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    name = "folder" if library == "lightning" else "output_dir"
    for mode in (0o1777, 0o777):
        folder.chmod(mode)
        monkeypatch.setattr(job, "_job", None)
        with pytest.raises(RefusedError, match="strangers can put files"):
            callback(*CALLBACKS[library], **{name: folder})
    folder.chmod(0o2770)  # those of a group are no strangers
    monkeypatch.setattr(job, "_job", None)
    callback(*CALLBACKS[library], **{name: folder})
