"""A site's daemon on a testbed, whose trainers are of several Unix users.

Everything is real: Slurm, munge, sudo, the users. The daemon runs as one of its own.
"""

from __future__ import annotations

import contextlib
import json
import pwd
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import bftrainer
from slurm.testbed import Testbed
from tests.support.processes import pids
from tests.support.waiting import until

ROOT = Path(bftrainer.__file__).parent.parent
START_S = 180.0
SCRIPT = """\
import time
import torch
from torch.utils.data import TensorDataset
from bftrainer import elastic

model = torch.nn.Linear(1, 1)
data = TensorDataset(torch.ones(1000, 1))
for (x,) in (run := elastic.Run(model, torch.optim.SGD(model.parameters(), lr=0.0), data, batch_size=4)):
    model(x).sum().backward()
    time.sleep(0.05)
    run.step(loss=0.25)
    if run.position.step % 20 == 0:
        print("the result is 42", flush=True)
"""
SPEC = """\
name: {name}
command: [{python}, train.py]
nodes: {{min: 1, max: 1}}
env: {{TOKEN: {name}-token}}
checkpoint: {{every_s: 0.5}}
"""


class SharedSite:
    """A daemon of the service account, and the command line as any user has it; `settings` beside its own."""

    def __init__(
        self, bed: Testbed, users: tuple[str, str], service: str, ports: Sequence[int], **settings: object
    ) -> None:
        self.bed, self.users, self.service = bed, users, service
        self.place = Path(tempfile.mkdtemp(prefix="bft-site-"))
        self.place.chmod(0o755)
        self.python = self.place / "bin" / "python"
        self.state, self.socket = self.place / "state", self.place / "run" / "daemon.sock"
        self.agents_at, self.server = (f"127.0.0.1:{port}" for port in ports)
        self.daemon: subprocess.Popen[bytes] | None = None
        self._write_python()
        for folder, mode in ((self.state, 0o700), (self.socket.parent, 0o755)):
            folder.mkdir(mode=mode)
            shutil.chown(folder, service, service)
        self._write_config(settings)

    def _write_python(self) -> None:
        """An interpreter for everybody: this one may lie where only its owner can go."""
        self.python.parent.mkdir()
        path = f"{ROOT}:{sysconfig.get_path('purelib')}"
        self.python.write_text(
            f'#!/bin/sh\nPYTHONPATH={path} PYTHONDONTWRITEBYTECODE=1 exec {system_python()} "$@"\n'
        )
        self.python.chmod(0o755)

    def _write_config(self, more: Mapping[str, object]) -> None:
        settings = {
            "mode": "site",
            "scheduler": "slurm",
            "slurm_partition": "backfill",
            "state_dir": str(self.state),
            "socket": str(self.socket),
            "listen": self.agents_at,
            "listen_users": self.server,
            "munge": True,
            "munge_socket": str(self.bed.plan.munge_socket),
            "exec_prefix": ["sudo", "-n", "-u", "{user}", "--"],
            "pilot_python": str(self.python),
            "warm_pool": False,
            "poll_s": 0.2,
            **more,
        }
        (self.place / "daemon.yaml").write_text(json.dumps(settings))

    def start(self) -> None:
        log = (self.place / "daemon.log").open("ab")
        entry = pwd.getpwnam(self.service)
        self.daemon = subprocess.Popen(
            [self.python, "-m", "bftrainer", "daemon", "--config", str(self.place / "daemon.yaml")],
            user=entry.pw_uid,
            group=entry.pw_gid,
            extra_groups=[],
            cwd="/",
            env={**self._clean(self.bed.env), "HOME": entry.pw_dir, "USER": self.service},
            stdout=log,
            stderr=log,
        )
        until(
            lambda: self.bftrainer(self.users[0], "status").returncode == 0,
            "the daemon answers",
            seconds=START_S,
            story=self.story,
        )

    def story(self) -> str:
        return (self.place / "daemon.log").read_text()

    def stop(self) -> None:
        for user in self.users:
            for trainer in json.loads(self.bftrainer(user, "list", "--json").stdout or "[]"):
                self.bftrainer(user, "cancel", "--no-wait", str(trainer["id"]))
        if self.daemon is not None:
            self.daemon.terminate()
            try:
                self.daemon.wait(START_S)
            except subprocess.TimeoutExpired:
                self.daemon.kill()
                self.daemon.wait()
        with contextlib.suppress(AssertionError):
            until(
                lambda: not self.bed.run(["squeue", "-h"]).stdout.strip(),
                "no job is left",
                seconds=30,
                story=self.story,
            )
        shutil.rmtree(self.place)

    @staticmethod
    def _clean(env: dict[str, str]) -> dict[str, str]:
        return {k: v for k, v in env.items() if not k.startswith(("BFTRAINER_", "PYTHON"))}

    def run(self, user: str, *command: object, **options: Any) -> subprocess.CompletedProcess[str]:
        """A command as a user; failure is for the caller to look at."""
        return self.bed.run([str(word) for word in command], user=user, **{"check": False, **options})

    def bftrainer(self, user: str, *words: str, tcp: bool = False) -> subprocess.CompletedProcess[str]:
        """The command line as a user, over the socket or over TCP with munge."""
        where = {"SERVER": self.server} if tcp else {"SOCKET": self.socket}
        where |= {"MUNGE_SOCKET": self.bed.plan.munge_socket, "SITE_CONFIG": "/nonexistent/config.yaml"}
        given = [f"BFTRAINER_{key}={value}" for key, value in where.items()]
        return self.run(user, "env", *given, self.python, "-m", "bftrainer", *words)

    def json(self, user: str, *words: str, tcp: bool = False) -> Any:
        done = self.bftrainer(user, *words, "--json", tcp=tcp)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def home(self, user: str) -> Path:
        return Path(pwd.getpwnam(user).pw_dir)

    def submit(self, user: str, name: str, spec: str = SPEC) -> None:
        home = self.home(user)
        for file, text in (
            ("train.py", SCRIPT),
            (f"{name}.yaml", spec.format(name=name, python=self.python)),
        ):
            (home / file).write_text(text)
            shutil.chown(home / file, user, user)
        done = self.bftrainer(user, "submit", f"{home}/{name}.yaml")
        assert done.returncode == 0, done.stderr

    def trainer(self, user: str, name: str = "") -> dict[str, Any]:
        found: dict[str, Any] = self.json(user, "show", name or self.name(user))
        return found

    def name(self, user: str) -> str:
        return f"work-of-{user}"

    def pilot(self, user: str) -> tuple[str, str, int]:
        """Job number, tag and process of the agent that serves a user."""
        rows = self.bed.run(["squeue", "-h", "-t", "RUNNING", "-u", user, "-o", "%i %j"]).stdout.split()
        job, tag = rows[0], rows[1].rpartition("-")[2]
        return job, tag, next(pid for pid in pids() if agent_of(pid, tag))


def system_python() -> str:
    """An interpreter that every user can run, of the version of this one."""
    if others_can(["test", "-x", sys.executable]) and others_can([sys.executable, "-c", ""]):
        return sys.executable
    found = shutil.which(f"python3.{sys.version_info.minor}", path="/usr/bin:/usr/local/bin")
    if found is None:
        pytest.skip(f"{sys.executable} cannot be run by other users, and there is no other")
    return found


def others_can(command: list[str]) -> bool:
    nobody = pwd.getpwnam("nobody")
    done = subprocess.run(
        command, user=nobody.pw_uid, group=nobody.pw_gid, extra_groups=[], capture_output=True, check=False
    )
    return done.returncode == 0


def words_of(pid: int) -> list[str]:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    return []


def agent_of(pid: int, tag: str) -> bool:
    words = words_of(pid)
    return "bftrainer.agent" in words and tag in words
