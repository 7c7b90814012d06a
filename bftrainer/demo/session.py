"""The processes of a demonstration: a daemon in a directory of its own, its pilots and its workers.

All of it is what a site runs, except that a log plays the main scheduler's part. The session talks to the
daemon through the API, as any user does.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from bftrainer.api.client import Client, DaemonError
from bftrainer.demo.acts import JobLine, Order
from bftrainer.demo.summary import Summary, summarise
from bftrainer.demo.view import DaemonView, Looker
from bftrainer.errors import BftrainerError
from bftrainer.files import read_text
from bftrainer.messages.trying import NO_NODES_HERE
from bftrainer.settings.client.given import PREFIX
from bftrainer.traces.whole_file import copy_folder

START_S = 120.0
MOST_KB = 1000
STOP_S = 120.0
DYING_S = 10.0
"""Seconds that processes which the daemon has told to end may outlive it."""


def _arguments(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""  # it has ended


def strays(directory: Path) -> list[int]:
    """Return the ids of the processes whose arguments or environment name the directory, without this one."""
    wanted, found = str(directory).encode(), []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                text = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
            except OSError:
                continue  # it has ended, or it belongs to another user
            if wanted in text:
                found.append(int(entry.name))
    return found


def settled_strays(directory: Path, patience_s: float) -> list[int]:
    """Return the strays that are left once those that are ending have had `patience_s` to end."""
    deadline = time.monotonic() + patience_s
    while (found := strays(directory)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


class DemoSession:
    """Starts a daemon in a directory of its own: `submit`, iterate `watch`, `finish`, and always `close`.

    What the directory holds in the end is copied to `keep`. The daemon runs with `settings`, whatever the
    user or the site has set otherwise; `environ` is added to its environment. With `main_jobs`, its nodes
    are taken by the main jobs that `perform` orders, and by no log.

    Raises:
        BftrainerError: The daemon did not start; the message ends with its log.
    """

    def __init__(
        self,
        daemon_options: Sequence[str],
        keep: Path | None = None,
        settings: Mapping[str, object] | None = None,
        environ: Mapping[str, str] | None = None,
        *,
        main_jobs: bool = False,
    ) -> None:
        self._keep = keep
        self._state = Path(tempfile.mkdtemp(prefix="bftrainer-demo-"))
        self._environ = {k: v for k, v in os.environ.items() if not k.startswith(PREFIX)}
        config = self._state / "config.yaml"
        values = {"trainer_dir": str(self._state / "trainers"), **(settings or {})}
        config.write_text(yaml.safe_dump(values), "utf-8")
        self._jobs = self._state / "main-jobs"
        if main_jobs:
            self._jobs.touch()
        self._log = (self._state / "daemon.log").open("wb")
        self._daemon = subprocess.Popen(
            [
                *(sys.executable, "-P", "-m", "bftrainer", "daemon"),
                *("--config", str(config), "--state-dir", str(self._state)),
                *daemon_options,
                *(("--main-jobs", str(self._jobs)) if main_jobs else ()),
            ],
            stdout=self._log,
            stderr=self._log,
            env={**self._environ, **(environ or {})},
        )
        self._page: subprocess.Popen[str] | None = None
        self.client = Client(self._state / "daemon.sock")
        self._looker = Looker(self.client)
        self._await_daemon()

    def open_page(self) -> str:
        """Start `bftrainer web` beside the daemon, until the end, and return what it says first: its URL, or
        why there is no page."""
        words = [sys.executable, "-P", "-m", "bftrainer", "web", "--no-browser"]
        self._page = subprocess.Popen(
            [*words, "--state-dir", str(self._state)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=self._environ,
            text=True,
        )
        assert self._page.stdout is not None  # noqa: S101  it is a pipe
        return self._page.stdout.readline().strip()

    def submit(self, specs: Sequence[Path]) -> None:
        """Submit every spec, as `bftrainer submit` does.

        Raises:
            BftrainerError: A spec cannot be read, or the daemon refuses it.
        """
        for path in specs:
            try:
                text = read_text(path, MOST_KB)
            except (OSError, UnicodeDecodeError) as error:
                raise BftrainerError(f"{path}: {error}") from error
            body = {"spec": text, "name": str(path), "base": str(path.parent.resolve())}
            self.client.call("POST", "trainers", body=body)

    def submit_study(self, path: Path) -> str:
        """Submit a study, as `bftrainer study submit` does. Returns its name.

        Raises:
            BftrainerError: The file cannot be read, or the daemon refuses it.
        """
        try:
            text = read_text(path, MOST_KB)
        except (OSError, UnicodeDecodeError) as error:
            raise BftrainerError(f"{path}: {error}") from error
        body = {"spec": text, "name": str(path), "base": str(path.parent.resolve())}
        return str(self.client.call("POST", "studies", body=body)["name"])

    def watch_study(self, name: str, seconds: float, every_s: float = 0.5) -> Iterator[dict[str, Any]]:
        """Yield what the daemon tells of a study until it has ended, or `seconds` have passed."""
        deadline = time.monotonic() + seconds
        while True:
            found = self.client.study(name)
            yield found
            if found["ended_at"] or time.monotonic() > deadline:
                return
            time.sleep(every_s)

    def watch(self, seconds: float, every_s: float = 0.5) -> Iterator[DaemonView]:
        """Yield views until `seconds` have passed since the first one or every trainer has ended."""
        while True:
            view = self.view()
            yield view
            if view.elapsed_s >= seconds or all(t["ended_at"] for t in view.trainers):
                return
            time.sleep(every_s)

    def view(self) -> DaemonView:
        """Ask the daemon for the present state; time counts from the first view."""
        return self._looker.look()

    @property
    def state_dir(self) -> Path:
        """The daemon's state directory."""
        return self._state

    def nodes(self) -> list[dict[str, Any]]:
        """Return the nodes as `bftrainer pool` shows them."""
        return list(self.client.call("GET", "pool")["nodes"])

    def perform(self, orders: Sequence[Order]) -> None:
        """Carry out what an act orders: add main jobs, or kill a pilot."""
        for order in orders:
            if isinstance(order, JobLine):
                with self._jobs.open("a", encoding="utf-8") as file:
                    file.write(f"{order.text}\n")
            else:
                for pid in strays(self._state):
                    if f"--node\0{order.node}\0".encode() in _arguments(pid):
                        with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
                            os.kill(pid, signal.SIGKILL)

    def waits(self) -> dict[str, float]:
        """Return how long (s) main jobs have waited for our nodes, those that waited longest."""
        worst = self.client.call("GET", "admin/impact", days=1)["worst"]
        return {row["job"]: row["wait_s"] for row in worst}

    def log(self) -> str:
        """Return the daemon's log."""
        return (self._state / "daemon.log").read_text("utf-8", "replace")

    def log_end(self) -> str:
        """Return the end of the daemon's log, at most 4000 characters."""
        return self.log()[-4000:]

    def finish(self) -> Summary:
        """Collect the figures, stop the daemon, and look for processes that it left behind.

        Raises:
            BftrainerError: The daemon did not stop within `STOP_S`.
        """
        pauses = self.client.rows("pauses", 10_000)
        events = self.client.rows("events", 10_000)
        trainers = self.client.call("GET", "trainers")
        studies = [self.client.study(study["name"]) for study in self.client.call("GET", "studies")]
        self._stop()
        return summarise(events, pauses, trainers, studies, settled_strays(self._state, DYING_S))

    def close(self) -> None:
        """End all processes that are left, copy the directory to `keep`, and remove it."""
        if self._daemon.poll() is None:
            self._daemon.kill()
            self._daemon.wait()
        for pid in strays(self._state):
            with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
                os.kill(pid, signal.SIGKILL)
        self._log.close()
        if self._keep is not None:
            copy_folder(self._state, self._keep, "*.sock")
        shutil.rmtree(self._state, ignore_errors=True)

    def _await_daemon(self) -> None:
        deadline = time.monotonic() + START_S
        while True:
            try:
                self.client.call("GET", "status")
                return
            except DaemonError:
                if self._daemon.poll() is not None or time.monotonic() > deadline:
                    log = self.log_end()
                    self.close()
                    raise BftrainerError(NO_NODES_HERE.ends(f"the daemon did not start:\n{log}")) from None
                time.sleep(0.05)

    def _stop(self) -> None:
        """Send SIGTERM: every trainer writes a checkpoint before the daemon ends."""
        if self._page is not None:
            self._page.terminate()
            self._page.communicate()
        self._daemon.send_signal(signal.SIGTERM)
        try:
            self._daemon.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._daemon.send_signal(signal.SIGABRT)  # its log then ends with where its threads are
            self._daemon.wait()
            what = f"the daemon did not stop within {STOP_S:.0f} s:\n{self.log_end()}"
            raise BftrainerError(NO_NODES_HERE.ends(what)) from None
