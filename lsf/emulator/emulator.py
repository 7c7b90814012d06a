"""An emulated LSF in a process of its own: started, asked and taken down again."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from bftrainer.state_dir.path_safety import danger
from lsf.emulator import sites
from lsf.emulator.commands.registry import COMMANDS
from lsf.emulator.control import REQUESTS
from lsf.emulator.core.model import Closed, Demand, Host, Request, Site
from lsf.emulator.manners import Manners
from lsf.emulator.server import SOCKET

START_S = 60.0
STOP_S = 30.0
POLL_S = 0.02
CLIENT, TASKS = (Path(__file__).with_name(name) for name in ("client.py", "tasks.py"))
ROOT = Path(__file__).parents[2]


class EmulatorError(Exception):
    """The emulator cannot be started or asked; the text says why."""


class Emulator:
    """A running emulated LSF; as a context it is started and taken down, with all jobs.

    Attributes:
        directory: Everything of it lies there.
        bin: The folder with its commands.
        env: The environment in which the commands are found first.
    """

    def __init__(
        self,
        hosts: int = 4,
        *,
        site: Site | None = None,
        manners: Manners | None = None,
        directory: Path | None = None,
        virtual: float | None = None,
        **parameters: Any,
    ) -> None:
        """Nothing happens before `up`.

        `site` is what it consists of; without one it is `sites.small(hosts)`. `parameters` replace those of
        the site (`cycle_s=1`). `virtual` is the time (Unix s) at which a clock stands that only `move` moves;
        None: time is real. `directory` is made; None: a new temporary one.
        """
        self.site = replace(site or sites.small(hosts), **parameters)
        self._manners, self._wanted, self._virtual = manners or Manners(), directory, virtual
        self._server: subprocess.Popen[bytes] | None = None

    @classmethod
    def at(cls, directory: Path) -> Emulator:
        """The emulator that we, or root, run in a directory, whose programs callers will start.

        Raises:
            EmulatorError: there is none, or another user could have put it there.
        """
        if found := danger(directory / "site.json", os.geteuid(), strict=True, instead="/srv/emulator"):
            raise EmulatorError(f"{directory}: {found.said}; {found.remedy}")
        emulator = cls(site=sites.SITE.validate_json((directory / "site.json").read_bytes()))
        emulator._adopt(directory.resolve())
        emulator.control("now")
        return emulator

    def __enter__(self) -> Emulator:
        self.up()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.down()

    def up(self, *, stay: bool = False) -> None:
        """Start it; returns when its commands are answered. `stay`: it outlives this process.

        Raises:
            EmulatorError: it does not start, or the directory is in use.
        """
        if self._wanted is None:
            directory = Path(tempfile.mkdtemp(prefix="bftrainer-lsf-"))
            directory.chmod(0o755)
        else:
            directory = self._wanted
            try:
                directory.mkdir(mode=0o755, parents=True)
            except FileExistsError:
                raise EmulatorError(f"{directory}: is there already; take it down or name another") from None
        self._adopt(directory.resolve())
        self._lay_out()
        words = [sys.executable, "-m", "lsf.emulator", "serve", "--dir", str(self.directory)]
        with (self.directory / "log").open("wb") as log:
            self._server = subprocess.Popen(
                words if stay else [*words, "--until-eof"],
                stdin=subprocess.DEVNULL if stay else subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=ROOT,
                start_new_session=True,
            )
        self._until_it_answers()

    def _adopt(self, directory: Path) -> None:
        self.directory, self.bin = directory, directory / "bin"
        self.env = {key: value for key, value in os.environ.items() if not key.startswith(("LSB_", "LSF_"))}
        self.env["PATH"] = f"{self.bin}{os.pathsep}{self.env.get('PATH', os.defpath)}"

    def _lay_out(self) -> None:
        (self.directory / "site.json").write_bytes(sites.SITE.dump_json(self.site))
        start = {"manners": {name: getattr(self._manners, name) for name in Manners.__slots__}}
        (self.directory / "start.json").write_text(json.dumps({**start, "virtual": self._virtual}))
        self.bin.mkdir()
        for program, names in ((CLIENT, tuple(COMMANDS)), (TASKS, ("jsrun", "blaunch"))):
            copy = self.bin / f".{program.name}"
            copy.write_text(f"#!{interpreter()} -ISs\n{program.read_text('utf-8')}", encoding="utf-8")
            copy.chmod(0o755)
            for name in names:
                (self.bin / name).symlink_to(copy.name)

    def _until_it_answers(self) -> None:
        assert self._server is not None  # noqa: S101  it has just been started
        deadline = time.monotonic() + START_S
        while True:
            try:
                self.control("now")
                return
            except EmulatorError as error:
                if self._server.poll() is not None or time.monotonic() > deadline:
                    said = (self.directory / "log").read_text(encoding="utf-8", errors="replace")
                    self.down()
                    raise EmulatorError(f"the server does not answer ({error}); it said:\n{said}") from error
            time.sleep(POLL_S)

    def down(self) -> None:
        """Stop the server and all jobs, and remove the directory."""
        try:
            self.control("stop")
        except EmulatorError:
            if self._server is not None:
                self._server.kill()
        if self._server is not None:
            if self._server.stdin is not None:
                self._server.stdin.close()
            self._server.wait(STOP_S)
        else:
            deadline = time.monotonic() + STOP_S
            while (self.directory / SOCKET).exists() and time.monotonic() < deadline:
                time.sleep(POLL_S)
        shutil.rmtree(self.directory)

    def control(self, action: str, **given: Any) -> Any:
        """Have the server do something that no command does; see `control.ACTIONS`.

        Raises:
            EmulatorError: it does not answer, or refuses.
        """
        question = json.dumps({"control": action, "with": given}).encode() + b"\n"
        try:
            with socket.socket(socket.AF_UNIX) as link:
                link.settimeout(STOP_S)
                link.connect(str(self.directory / SOCKET))
                link.sendall(question)
                with link.makefile("rb") as lines:
                    answer = json.loads(lines.readline() or b'{"error": "no answer"}')
        except OSError as error:
            raise EmulatorError(f"{self.directory}: {error}") from error
        if "error" in answer:
            raise EmulatorError(answer["error"])
        return answer["done"]

    def manners(self, **changes: Any) -> None:
        """Change some of its manners, from the next command on."""
        self.control("manners", **changes)

    def close_host(self, name: str, reason: Closed = Closed.ADMIN) -> None:
        """Close a host."""
        self.control("host", name=name, closed=reason.value)

    def open_host(self, name: str) -> None:
        """Open a host."""
        self.control("host", name=name)

    def submit(self, jobs: Iterable[Request]) -> list[int]:
        """Submit simulated jobs at once; returns their ids."""
        found: list[int] = self.control("submit", jobs=REQUESTS.dump_python(list(jobs), mode="json"))
        return found

    def main_job(
        self, hosts: int = 1, *, seconds: float, limit_s: float | None = None, only: Iterable[str] = ()
    ) -> int:
        """Submit a simulated job on whole hosts to the first queue; returns its id."""
        slots = max(host.slots for host in self.site.hosts if not host.launch)
        demand = Demand(
            slots=slots * hosts,
            per_host=slots,
            whole=True,
            only=frozenset(only) or None,
            launch=self.has_launch,
        )
        limit = seconds + 60 if limit_s is None else limit_s
        queue = max(self.site.queues, key=lambda queue: queue.priority).name
        job = Request(
            demand=demand,
            user="main",
            queue=queue,
            duration_s=seconds,
            limit_s=limit,
            name="main",
            shown="main",
        )
        return self.submit([job])[0]

    @property
    def has_launch(self) -> bool:
        """Return whether scripts start on launch hosts."""
        return any(host.launch for host in self.site.hosts)

    def feed(self, coming: Sequence[tuple[float, Request]]) -> None:
        """Submit simulated jobs at these seconds from now, in place of those that are still to come."""
        jobs = REQUESTS.dump_python([job for _, job in coming], mode="json")
        self.control("feed", jobs=jobs, after_s=[after for after, _ in coming])

    def move(self, seconds: float) -> float:
        """Move the virtual clock; returns the time."""
        return float(self.control("move", seconds=seconds))

    def jobs(self) -> list[dict[str, Any]]:
        """Every job that is listed, with times in Unix s."""
        found: list[dict[str, Any]] = self.control("jobs")
        return found

    def run(self, *command: str, check: bool = False, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run a command, its output captured as text; `options` are those of `subprocess.run`."""
        defaults = {"capture_output": True, "text": True, "timeout": 60, "env": self.env, "cwd": "/"}
        if "input" not in options:
            defaults["stdin"] = subprocess.DEVNULL
        return subprocess.run(list(command), check=check, **{**defaults, **options})


def interpreter() -> str:
    """A Python for the clients: ours, or the system's where other users may not run ours."""
    for path in (Path(sys.executable), Path("/usr/bin/python3")):
        places = (path, path.resolve(), *path.resolve().parents)
        if all(place.exists() and place.stat().st_mode & 0o001 for place in places):
            return str(path)
    return sys.executable


def compute_hosts(site: Site) -> tuple[Host, ...]:
    """The hosts of a site that are no launch hosts."""
    return tuple(host for host in site.hosts if not host.launch)
