"""Who runs a command in a folder where others may write runs none of their code."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from pathlib import Path

import pytest

import bftrainer
from bftrainer.elsewhere import READ_SETTINGS
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


@pytest.mark.parametrize("package", sorted(READ_SETTINGS))
def test_no_command_takes_settings_from_the_present_folder(tmp_path: Path, package: str) -> None:
    """Those of Numba say where it finds what it runs; Matplotlib has evaluated some of its own."""
    (tmp_path / "matplotlibrc").write_text("figure.dpi: 17\n")
    (tmp_path / ".numba_config.yaml").write_text("cache_dir: /stranger\n")
    seen = {"matplotlib": "matplotlib.rcParams['figure.dpi']", "numba": "numba.config.CACHE_DIR"}[package]
    code = (
        "import os, sys; sys.argv = ['bftrainer', '--version']\n"
        "from bftrainer.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        f"import {package}; print({seen}, os.getcwd())"
    )
    words = [sys.executable, "-P", "-c", code]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True)
    value, here = done.stdout.splitlines()[-1].rsplit(" ", 1)
    assert value.strip() in ("100.0", ""), value
    assert here == str(tmp_path)


def test_every_python_that_is_started_for_a_module_of_ours_is_safe() -> None:
    bare = [path.name for path in SOURCES if re.search(r'executable, "-m"', path.read_text())]
    assert not bare, 'write: sys.executable, "-P", "-m"'
