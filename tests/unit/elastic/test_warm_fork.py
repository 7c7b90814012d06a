"""A worker that is forked from the warm process becomes a child of the agent, or ends with it."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

from bftrainer.elastic.process.channel import AGENT_GONE
from bftrainer.elastic.programs import forked as forked_module
from bftrainer.elastic.programs import preload, warm

AGENT, MIDDLE, INIT = 4711, 10, 1


def forked(patched: pytest.MonkeyPatch, *parents: int) -> int:
    """What `_fork_for` returns in the process that it forks, which has these parents whenever it asks.

    Raises:
        SystemExit: it ends.
    """
    asked = iter(parents)
    for name, call in {"fork": lambda: 0, "getpid": lambda: MIDDLE, "getppid": lambda: next(asked)}.items():
        patched.setattr(warm.os, name, call)
    patched.setattr(warm.os, "_exit", sys.exit)
    patched.setattr(warm.ctypes, "CDLL", MagicMock())
    return warm._fork_for(AGENT)


def test_it_goes_on_if_it_is_adopted_while_it_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        assert forked(patched, MIDDLE, MIDDLE, AGENT, AGENT, AGENT) == 0


@pytest.mark.parametrize("first", [MIDDLE, INIT])
def test_it_ends_if_another_process_has_adopted_it(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched, pytest.raises(SystemExit) as ended:
        forked(patched, first, first, INIT, INIT)
    assert ended.value.code == AGENT_GONE


@pytest.mark.parametrize(("wanted", "set_to"), [("2", [2]), ("8", []), ("", []), ("0", []), ("many", [])])
def test_a_worker_with_a_part_of_the_cores_has_as_many_threads(wanted: str, set_to: list[int]) -> None:
    told: list[int] = []
    torch = SimpleNamespace(get_num_threads=lambda: 8, set_num_threads=told.append)
    forked_module._set_threads(torch, wanted)
    assert told == set_to


@pytest.mark.parametrize("is_device", [True, False])
def test_an_import_that_opens_a_driver_is_noticed(
    is_device: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As PyTorch's compiler does, to ask what the GPU can do: `torch.cuda` is not initialized by that."""
    driver, script = tmp_path / "nvidiactl", tmp_path / "train.py"
    driver.touch()
    name = f"opens_a_driver_{is_device}".lower()
    packages = tmp_path / "packages"
    packages.mkdir()
    (packages / f"{name}.py").write_text(f"kept = open({str(driver)!r})\n")
    script.write_text(f"import {name}\n")
    monkeypatch.syspath_prepend(packages)
    monkeypatch.setattr(preload, "is_installed", lambda _: True)
    monkeypatch.setattr(threading, "active_count", lambda: 1)  # other tests' threads may still be there
    monkeypatch.setattr(preload, "DEVICES", (str(driver),) if is_device else ("/dev/nvidia",))
    with pytest.raises(SystemExit) if is_device else contextlib.nullcontext() as ended:
        preload.import_for(str(script))
    assert ended is None or ended.value.code == preload.UNSAFE
    sys.modules[name].kept.close()


SPAWNS = """
import multiprocessing, os, sys
def tell(place):
    open(place, "w").write(os.getcwd())
if __name__ == "__main__":
    child = multiprocessing.get_context("spawn").Process(target=tell, args=("told",))
    child.start()
    child.join()
    assert child.exitcode == 0
"""


def test_a_script_can_spawn_processes_that_find_it(tmp_path: Path) -> None:
    """As a DataLoader does that is told so. The warm process itself was started in another folder."""
    (tmp_path / "train.py").write_text(SPAWNS)
    code = (
        "import multiprocessing, os\n"
        "from bftrainer.elastic.programs.forked import Task, become\n"
        "log, environ = os.dup(2), {**os.environ, 'BFTRAINER_WORKER': '{}'}\n"
        f"become(Task(title='t', words=['train.py'], workdir={str(tmp_path)!r}, environ=environ, gated=False,"
        " channel=0, log=log, slots=[]))"
    )
    subprocess.run([sys.executable, "-P", "-c", code], cwd="/", check=True)
    assert (tmp_path / "told").read_text() == str(tmp_path)
