"""Who runs a command in a folder where others may write runs none of their code."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

import bftrainer
from bftrainer.launch.torchrun.stores import StoreHost
from bftrainer.replay.sweep.processes import executor

SOURCES = sorted(Path(bftrainer.__file__).parent.rglob("*.py"))
MODULES = ("bftrainer", "multiprocessing", "json", "torch")
"""What new processes import first."""


@pytest.fixture
def evil(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The present folder, with modules of a stranger; what they do would make the file `owned`."""
    for name in MODULES:
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'owned')!r}, 'w')\nraise SystemExit(1)\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "owned"


def test_the_host_of_stores_imports_nothing_from_the_daemons_folder(evil: Path) -> None:
    async def story() -> None:
        host, port = StoreHost("127.0.0.1", memory_mb=64, connections=64), asyncio.Event()
        try:
            host.open(1, 1, lambda _: port.set(), lambda _: None)
            await asyncio.wait_for(port.wait(), 30)
        finally:
            host.close()
            if host._process is not None:
                await host._process.wait()

    asyncio.run(story())
    assert not evil.exists()


def test_the_processes_of_a_sweep_import_nothing_from_the_present_folder(evil: Path) -> None:
    with executor(1) as pool:
        assert pool.submit(abs, -3).result(60) == 3
    assert not evil.exists()


def test_every_python_that_is_started_for_a_module_of_ours_is_safe() -> None:
    bare = [path.name for path in SOURCES if re.search(r'executable, "-m"', path.read_text())]
    assert not bare, 'write: sys.executable, "-P", "-m"'
