"""The wheel is complete: in a fresh environment without the extras of development it replays and trains.

The environment shares nothing with the one that runs the tests, so an import that no dependency of the
package declares fails here.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.support.waiting import LONG_S

ROOT = Path(__file__).parent.parent.parent
INSTALL_S = 600
KEPT = ("HOME", "LANG", "SSL_CERT_FILE", "http_proxy", "https_proxy", "no_proxy")
"""Of the environment of the tests, beside pip's settings, the installation needs only these variables."""
CODE = """
import sys
from pathlib import Path
import bftrainer
from bftrainer.store.sql import SqlStore
assert Path(bftrainer.__file__).is_relative_to(sys.argv[1]), bftrainer.__file__
SqlStore(Path(sys.argv[2]) / "store.db").close()
assert (Path(bftrainer.__file__).parent / "store/migrations/script.py.mako").exists()
assert (Path(bftrainer.__file__).parent / "py.typed").exists()
from bftrainer.web.pages import files
assert {"/", "/main.js", "/page.css"} <= files().keys()
assert "torch" not in sys.modules
"""
SCRIPT = """
import torch
from bftrainer import elastic

torch.manual_seed(0)
model = torch.nn.Linear(4, 2)
data = torch.utils.data.TensorDataset(torch.randn(256, 4), torch.randint(0, 2, (256,)))
run = elastic.Run(model, torch.optim.SGD(model.parameters(), lr=0.1), data, batch_size=32)
for inputs, labels in run:
    loss = torch.nn.functional.cross_entropy(model(inputs), labels)
    loss.backward()
    run.step(loss=loss.item())
"""
SPEC = "name: short\ncommand: [python, train.py]\nnodes: {min: 1, max: 2}\nwork: {samples: 5000}\n"


@dataclass(frozen=True)
class Installed:
    """An environment with the wheel in it."""

    root: Path
    environ: dict[str, str]

    def install(self, *words: str | Path) -> None:
        """Install packages with the tests' own pip: the environment has none."""
        pip = [sys.executable, "-m", "pip", "--python", self.root / "bin/python", "--quiet"]
        # Python compiles what it imports, and pip would compile all of PyTorch
        install = ["--disable-pip-version-check", "install", "--no-compile"]
        subprocess.run([*pip, *install, *words], check=True, env=self.environ, timeout=INSTALL_S)

    def start(self, *words: str, cwd: Path) -> subprocess.Popen[bytes]:
        """Start a program of the environment and leave it running; its output goes to a file in `cwd`."""
        with (cwd / f"{words[0]}.log").open("wb") as log:
            command = [self.root / "bin" / words[0], *words[1:]]
            return subprocess.Popen(command, cwd=cwd, env=self.environ, stdout=log, stderr=log)

    def output(self, *words: str, cwd: Path) -> str:
        """Run a program of the environment and return what it prints."""
        command = [self.root / "bin" / words[0], *words[1:]]
        done = subprocess.run(
            command, cwd=cwd, env=self.environ, check=False, capture_output=True, text=True, timeout=LONG_S
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture
def installed(tmp_path: Path) -> Iterator[Installed]:
    folder = tmp_path / "package"
    folder.mkdir()
    environ = {k: v for k, v in os.environ.items() if k in KEPT or k.startswith("PIP_")}
    environ |= {"PATH": f"{folder}/venv/bin:/usr/bin:/bin", "XDG_CONFIG_HOME": str(folder)}
    environ["BFTRAINER_SITE_CONFIG"] = "/nonexistent/config.yaml"
    wheel = _wheel(folder)
    venv = [sys.executable, "-m", "venv", "--without-pip", folder / "venv"]
    subprocess.run(venv, check=True, timeout=LONG_S)
    index = subprocess.run(
        [sys.executable, ROOT / ".ci/torch_index.py"], check=True, capture_output=True, text=True
    ).stdout.split()
    torch = f"torch=={version('torch').partition('+')[0]}"
    installed = Installed(folder / "venv", environ)
    installed.install(*index, torch, f"{wheel}[torch]")
    yield installed
    shutil.rmtree(folder)  # PyTorch is large, and pytest keeps the folders of its last runs


def _wheel(folder: Path) -> Path:
    """Build a wheel from the files that git tracks."""
    source = folder / "source"
    tracked = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "-z"],  # git refuses another user's checkout otherwise
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
        env={k: v for k, v in os.environ.items() if not k.startswith("GIT_")},
    )
    for name in filter(None, tracked.stdout.split("\0")):
        if (ROOT / name).exists():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", folder, source], check=True, timeout=INSTALL_S)
    (wheel,) = folder.glob("bftrainer-*.whl")
    return wheel


def test_an_installed_wheel_is_complete(installed: Installed, tmp_path: Path) -> None:
    """All in one test: tests of a file may run in several processes, and each would install PyTorch."""
    for check in (
        the_files_are_there,
        no_extra_is_installed,
        the_milp_decides_in_a_replay,
        a_trainer_completes,
    ):
        with tempfile.TemporaryDirectory(prefix="bft-") as folder:  # short: sockets have short paths
            check(installed, Path(folder))


def the_files_are_there(installed: Installed, tmp_path: Path) -> None:
    installed.output("python", "-c", CODE, str(installed.root), str(tmp_path), cwd=tmp_path)
    for name in (
        "bftrainer.service",
        "bftrainer-no-sudo.conf",
        "bftrainer-ports.conf",
        "bftrainer-user.service",
        "grafana-dashboard.json",
    ):
        assert (installed.root / "share" / "bftrainer" / "jobscripts" / name).is_file()
    assert "replay" in installed.output("bftrainer", "--help", cwd=tmp_path)
    dry = ["--dry-run", "--node=n7", "--state-dir=state"]
    assert "bftrainer.agent --node n7" in installed.output("bftrainer", "pilot", *dry, cwd=tmp_path)


def no_extra_is_installed(installed: Installed, tmp_path: Path) -> None:
    code = (
        "from importlib.metadata import distributions as d; print(*(each.metadata['Name'] for each in d()))"
    )
    names = set(installed.output("python", "-c", code, cwd=tmp_path).lower().split())
    assert {"bftrainer", "torch"} <= names
    assert not names & {"pytest", "hypothesis", "scikit-learn", "pyscipopt", "mpi4py"}


def the_milp_decides_in_a_replay(installed: Installed, tmp_path: Path) -> None:
    log = ["idle_start,idle_end,node", *(f"{100 * n},{3600 + 50 * n},n{n}" for n in range(6))]
    (tmp_path / "log.csv").write_text("\n".join(log) + "\n")
    jobs = "".join(
        f"- {{name: j{n}, command: [x], nodes: {{min: 1, max: 4}}, work: {{samples: 100000}},"
        f" curve: [[1, {10 + n}], [4, {30 + 2 * n}]]}}\n"
        for n in range(3)
    )
    (tmp_path / "jobs.yaml").write_text(jobs)
    words = ["log.csv", "--workload", "jobs.yaml", "--allocator", "milp", "--json"]
    figures = json.loads(installed.output("bftrainer", "replay", *words, cwd=tmp_path))
    assert figures["events"] > 6
    assert figures["decided_by"].keys() == {"milp"} and figures["fallbacks"] == 0


def a_trainer_completes(installed: Installed, tmp_path: Path) -> None:
    # compiles it for all workers, each of which would do so
    installed.output("python", "-c", "import torch._dynamo", cwd=tmp_path)
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "short.yaml").write_text(SPEC)
    (tmp_path / "log.csv").write_text("idle_start,idle_end,node\n0,100000,n1\n0,100000,n2\n")
    (tmp_path / "config.yaml").write_text(f"trainer_dir: {tmp_path}/trainers\npoll_s: 0.2\nt_fwd_s: 20\n")
    played = ["--scheduler", "local", "--allocator", "milp", "--log", "log.csv", "--nodes", "2"]
    at = ["--state-dir", str(tmp_path / "s"), "--config", "config.yaml"]
    daemon = installed.start("bftrainer", "daemon", *played, *at, cwd=tmp_path)
    try:
        _until(lambda: (tmp_path / "s/daemon.sock").exists() or daemon.poll() is not None, "daemon", tmp_path)
        installed.output("bftrainer", "submit", "short.yaml", *at[:2], cwd=tmp_path)

        def status() -> str:
            shown = installed.output("bftrainer", "show", "short", "--json", *at[:2], cwd=tmp_path)
            return str(json.loads(shown)["status"])

        _until(lambda: status() in {"completed", "failed", "cancelled"}, "an end", tmp_path, every_s=2.0)
        assert status() == "completed", (tmp_path / "bftrainer.log").read_text()
        events = json.loads(installed.output("bftrainer", "events", "--json", *at[:2], cwd=tmp_path))
        plans = [e["plan"] for e in events if e["plan"] and any(e["plan"]["allocation"].values())]
        assert plans and {plan["allocator"] for plan in plans} == {"milp"}
    finally:
        daemon.send_signal(signal.SIGTERM)
        daemon.wait(LONG_S)


def _until(condition: Callable[[], bool], what: str, folder: Path, every_s: float = 0.2) -> None:
    deadline = time.monotonic() + LONG_S
    while not condition():
        assert time.monotonic() < deadline, f"no {what}: " + (folder / "bftrainer.log").read_text()
        time.sleep(every_s)
