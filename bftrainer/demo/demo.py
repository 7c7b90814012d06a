"""The demonstration: a daemon on this machine, and trainers that come and go with its idle nodes.

Everything in it is the real thing, but where a log plays the main scheduler's part; it talks to the
daemon as any user does, through the API.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from bftrainer.api.client import Client, DaemonError
from bftrainer.errors import BftrainerError
from bftrainer.settings.sources import PREFIX

START_S = 120.0
STOP_S = 120.0
DYING_S = 10.0
"""What the daemon has told to end may still be about it when the daemon has gone."""
RESCALES = ("join", "leave", "loss")


@dataclass(frozen=True, slots=True)
class View:
    """What the daemon says at one moment."""

    elapsed_s: float
    pool: dict[str, Any]
    trainers: list[dict[str, Any]]
    pauses: list[dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What a demonstration came to. A pause is the longest of a rescale's surviving members."""

    joins: int
    leaves: int
    pauses_s: dict[str, list[float]]
    steps_lost: int
    steps_repeated: int  # after all nodes of a trainer were lost at once: since its last checkpoint
    trainers: list[dict[str, Any]]
    strays: list[int]

    @property
    def good(self) -> bool:
        return self.steps_lost == 0 and not self.strays


class Demo:
    """Starts a daemon in a directory of its own; iterate `watch`, then `finish`.

    What the directory holds in the end is copied to `keep`. `settings` are the daemon's, whatever the user
    or the site has set otherwise; `environ` is added to its environment.
    """

    def __init__(
        self,
        daemon_options: Sequence[str],
        keep: Path | None = None,
        settings: Mapping[str, object] | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._keep = keep
        self._begin = 0.0
        self._state = Path(tempfile.mkdtemp(prefix="bftrainer-demo-"))
        own = {k: v for k, v in os.environ.items() if not k.startswith(PREFIX)}
        config = self._state / "config.yaml"
        config.write_text(
            yaml.safe_dump({"trainer_dir": str(self._state / "trainers"), **(settings or {})}), "utf-8"
        )
        self._log = (self._state / "daemon.log").open("wb")
        self._daemon = subprocess.Popen(
            [
                *(sys.executable, "-m", "bftrainer", "daemon"),
                *("--config", str(config), "--state-dir", str(self._state)),
                *daemon_options,
            ],
            stdout=self._log,
            stderr=self._log,
            env={**own, **(environ or {})},
        )
        self._client = Client(self._state / "daemon.sock")
        self._await_daemon()

    def submit(self, specs: Sequence[Path]) -> None:
        """Submit every spec, as `bftrainer submit` does."""
        for path in specs:
            body = {"spec": path.read_text("utf-8"), "name": str(path), "base": str(path.parent.resolve())}
            self._client.call("POST", "trainers", body=body)

    def watch(self, seconds: float, every_s: float = 0.5) -> Iterator[View]:
        """Views until the time is over or every trainer has ended."""
        while True:
            view = self.view()
            yield view
            if view.elapsed_s >= seconds or all(t["ended_at"] for t in view.trainers):
                return
            time.sleep(every_s)

    def view(self) -> View:
        """What the daemon says now; time has begun with the first view."""
        self._begin = self._begin or time.monotonic()
        return View(
            elapsed_s=time.monotonic() - self._begin,
            pool=self._client.call("GET", "pool"),
            trainers=self._client.call("GET", "trainers"),
            pauses=self._client.call("GET", "pauses", limit=60),
        )

    def said(self) -> str:
        """The daemon's log, the end of it."""
        return (self._state / "daemon.log").read_text("utf-8", "replace")[-4000:]

    def finish(self) -> Summary:
        """Collect the figures, stop the daemon, and look for what it left behind."""
        pauses = self._client.call("GET", "pauses", limit=10_000)
        events = self._client.call("GET", "events", limit=10_000)
        self._stop()
        changes = [e["data"] for e in events if e["kind"] == "NodesChanged"]
        longest: dict[tuple[int, int, str], float] = {}
        for p in pauses:
            key = (p["trainer"], p["generation"], p["kind"])
            longest[key] = max(longest.get(key, 0.0), p["pause_s"])
        return Summary(
            joins=sum(len(c["joined"]) for c in changes),
            leaves=sum(len(c["left"]) for c in changes),
            pauses_s={kind: [s for (_, _, k), s in longest.items() if k == kind] for kind in RESCALES},
            steps_lost=sum(p["lost_steps"] for p in pauses if p["kind"] in RESCALES),
            steps_repeated=sum(p["lost_steps"] for p in pauses if p["kind"] == "restart"),
            trainers=self._last,
            strays=self._settled_strays(),
        )

    def close(self) -> None:
        """Leave nothing behind, whatever happened before."""
        if self._daemon.poll() is None:
            self._daemon.kill()
            self._daemon.wait()
        for pid in self._strays():
            with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
                os.kill(pid, signal.SIGKILL)
        self._log.close()
        if self._keep is not None:
            shutil.copytree(self._state, self._keep, ignore=shutil.ignore_patterns("*.sock"))
        shutil.rmtree(self._state, ignore_errors=True)

    def _await_daemon(self) -> None:
        deadline = time.monotonic() + START_S
        while True:
            try:
                self._client.call("GET", "status")
                return
            except DaemonError:
                if self._daemon.poll() is not None or time.monotonic() > deadline:
                    said = self.said()
                    self.close()
                    raise BftrainerError(f"the daemon did not start:\n{said}") from None
                time.sleep(0.05)

    def _stop(self) -> None:
        """SIGTERM: every trainer writes a checkpoint. What they say last is kept for the summary."""
        self._last: list[dict[str, Any]] = self._client.call("GET", "trainers")
        self._daemon.send_signal(signal.SIGTERM)
        try:
            self._daemon.wait(STOP_S)
        except subprocess.TimeoutExpired:
            raise BftrainerError(f"the daemon did not stop within {STOP_S:.0f} s") from None

    def _settled_strays(self) -> list[int]:
        """The strays, once the dying have died."""
        deadline = time.monotonic() + DYING_S
        while (found := self._strays()) and time.monotonic() < deadline:
            time.sleep(0.05)
        return found

    def _strays(self) -> list[int]:
        """Processes that belong to this demonstration: its directory is in their words or environment."""
        mine, found = str(self._state).encode(), []
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal() and int(entry.name) != os.getpid():
                try:
                    told = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
                except OSError:
                    continue  # ended meanwhile, or somebody else's
                if mine in told:
                    found.append(int(entry.name))
        return found


def summary_lines(summary: Summary) -> list[str]:
    """The summary as lines of text."""
    every = [s for kind in RESCALES for s in summary.pauses_s[kind]]
    lines = [
        f"node joins {summary.joins}, node leaves {summary.leaves}, rescales {len(every)}",
        f"pause per rescale: {_spread(every)}",
        *(f"  {_KINDS[kind]}: {_spread(summary.pauses_s[kind])}" for kind in RESCALES),
        f"samples trained: {sum(t['samples'] for t in summary.trainers):,}",
        f"steps lost while a member survived: {summary.steps_lost}"
        + f" (repeated from checkpoints after losing all nodes at once: {summary.steps_repeated})",
    ]
    for t in summary.trainers:
        accuracy = t["metrics"].get("accuracy")
        lines.append(
            f"{t['name']}: {t['status']}, {t['samples']:,} samples"
            + (f", accuracy {accuracy:.1%}" if accuracy is not None else "")
        )
    gone = "yes" if not summary.strays else f"no: pids {summary.strays}"
    return [*lines, f"daemon and all workers are gone: {gone}"]


_KINDS = {"join": "nodes joined", "leave": "nodes given to others", "loss": "nodes killed"}


def _spread(pauses: list[float]) -> str:
    if not pauses:
        return "none"
    return f"median {statistics.median(pauses):.3f} s, max {max(pauses):.3f} s ({len(pauses)})"
