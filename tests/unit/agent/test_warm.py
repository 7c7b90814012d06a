"""What may be imported before a fork."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import wave
from pathlib import Path

import pytest

from bftrainer.agent.process import Program
from bftrainer.agent.warm import WarmPool
from bftrainer.elastic.process.channel import AGENT_GONE
from bftrainer.elastic.programs import preload


@pytest.mark.parametrize(("own", "is_same"), [({}, True), ({"PYTHONHASHSEED": "random"}, False)])
def test_texts_hash_alike_in_all_processes_of_a_trainer_unless_its_spec_says_otherwise(
    monkeypatch: pytest.MonkeyPatch, own: dict[str, str], *, is_same: bool
) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "random")
    program = Program(command=("python",), workdir=".", env=own)
    words = "print(hash('a'), list({str(i) for i in range(40)}))"
    seen = {
        subprocess.run(
            [sys.executable, "-c", words],
            env=program.environment(),
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for _ in range(2)
    }
    assert (len(seen) == 1) is is_same


def test_only_top_level_absolute_imports_are_done_beforehand(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import json, os.path as p\nfrom collections import abc\nfrom . import here\n"
        "def f():\n    import socketserver\nif True:\n    import wave\n"
    )
    assert preload.imports_of(script) == {"json": [], "os.path": [], "collections": ["abc"]}


def test_what_a_scripts_own_modules_import_is_done_beforehand_too(tmp_path: Path) -> None:
    (tmp_path / "wave.py").write_text("import json, model.net\n")  # not the installed one of that name
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "net.py").write_text("import wave, csv\n")
    (tmp_path / "broken.py").write_text("import (")
    script = tmp_path / "train.py"
    script.write_text("import sys, wave, broken, no_such\n")
    assert list(preload.imports_of(script)) == ["sys", "json", "csv", "no_such"]


@pytest.mark.parametrize(
    ("order", "code"), [('{"type": "regroup", "leaving": ["n1"]}\n', 0), ("", AGENT_GONE)]
)
def test_who_leaves_before_it_was_let_run_goes_quietly(order: str, code: int) -> None:
    ours, theirs = socket.socketpair()
    ours.sendall(order.encode())
    ours.shutdown(socket.SHUT_WR)
    waiting = f"from bftrainer.elastic.programs import forked; forked.wait_for_go({theirs.fileno()})"
    done = subprocess.run(
        [sys.executable, "-c", waiting], pass_fds=[theirs.fileno()], capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (code, b"")


@pytest.mark.parametrize(
    ("package", "installed"),
    [("json", True), ("numpy", True), ("sys", True), ("mpi4py", False), ("no_such_package", False)],
)
def test_what_starts_something_or_is_the_users_own_is_left_to_the_worker(
    package: str, installed: bool
) -> None:
    assert preload.is_installed(package) is installed


@pytest.fixture
def no_other_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that other tests have left in this process are none that an import has started."""
    monkeypatch.setattr(preload.threading, "active_count", lambda: 1)


@pytest.mark.usefixtures("no_other_threads")
def test_a_module_beside_the_script_is_never_imported_beforehand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bft_own_module.py").write_text("raise SystemExit(1)")
    monkeypatch.syspath_prepend(str(tmp_path))
    script = tmp_path / "train.py"
    script.write_text("import bft_own_module, wave\n")
    preload.import_for(str(script))
    assert "wave" in sys.modules and "bft_own_module" not in sys.modules


@pytest.mark.usefixtures("no_other_threads")
def test_what_a_package_imports_only_when_it_is_asked_for_is_done_beforehand_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(wave, "__getattr__", asked.append, raising=False)
    script = tmp_path / "train.py"
    script.write_text("from wave import open, Trainer\n")
    preload.import_for(str(script))
    assert asked == ["Trainer"]


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("python", "a.py", "--x"), ("a.py", "--x")),
        (("python", "-u", "a.py"), ("a.py",)),
        (("python", "-m", "pkg", "y"), ("-m", "pkg", "y")),
        (("python",), None),
        (("python", "-c", "pass"), None),
        (("bash", "a.sh"), None),
        (("no-such-program", "a.py"), None),
    ],
)
def test_only_this_interpreters_scripts_can_be_forked(
    command: tuple[str, ...], words: tuple[str, ...] | None
) -> None:
    program = Program(command=command, workdir="/w", env={})
    assert program.words == words


def test_another_interpreter_is_started_anew(tmp_path: Path) -> None:
    other = tmp_path / "python"
    other.symlink_to(Path(sys.executable).resolve())
    program = Program(command=("python", "a.py"), workdir="/w", env={"PATH": str(tmp_path)})
    assert program.words is None


@pytest.mark.parametrize(
    ("script", "code", "said"),
    [
        ("pass", 0, ""),
        ("sys.exit()", 0, ""),
        ("sys.exit(3)", 3, ""),
        ("sys.exit(-1)", 255, ""),
        ("sys.exit('no data')", 1, "no data"),
        ("1 / 0", 1, "ZeroDivisionError"),
        ("threading.Thread(target=lambda: (time.sleep(0.2), print('last'))).start()", 0, ""),
    ],
)
def test_a_forked_process_ends_as_any_does_but_is_not_taken_apart(script: str, code: int, said: str) -> None:
    program = f"""
from bftrainer.elastic.programs import forked
ending = forked.Ending()
import atexit, sys, threading, time
class Large:
    def __del__(self): print("taken apart", flush=True)
large = Large()
atexit.register(print, "tidied")
print("begun")
with ending.of():
    {script}
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert done.stdout.split("\n") == ["begun", *(["last"] if "last" in script else []), "tidied", ""]
    assert said in done.stderr


def test_what_a_run_of_ours_needs_is_imported_before_a_fork() -> None:
    program = """
import sys
from bftrainer.elastic.programs import warm
warm.load()
there = set(sys.modules)
import torch
from bftrainer import elastic
model = torch.nn.Linear(1, 1)
run = elastic.Run(model, torch.optim.SGD(model.parameters(), lr=0.1), torch.ones(4, 1), batch_size=2)
for x in run:
    run.backward(run.model(x).mean())
    run.step()
print([name for name in sys.modules if name not in there and name.startswith(("bftrainer", "torch._dynamo"))])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout == "[]\n", done.stderr


def test_a_warm_process_is_of_the_environment_that_the_spec_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, started = WarmPool("n"), list[object]()

    async def start(program: Program) -> None:
        started.append(dict(program.env))
        pool.pid, pool._env = 2**30, dict(program.env)

    monkeypatch.setattr(pool, "_start", start)
    monkeypatch.setattr("bftrainer.agent.warm.os.kill", lambda pid, which: None)
    for number in (1, 1, 2):
        words = (sys.executable, "-m", "train")
        asyncio.run(pool.prepare(Program(command=words, workdir=".", env={"A": str(number)})))
    assert started == [{"A": "1"}, {"A": "2"}]
