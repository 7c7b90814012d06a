"""A trainer on nodes that have this machine's GPUs, for gpu.py and gpu_faults.py."""

from __future__ import annotations

import argparse
import os
import re
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import elastic_baselines as baselines
from elastic import NODES, Ours
from elastic_baselines import Change

PATIENCE_S = 120.0
NOTE = re.compile(r"takes part since step \d+, ([\d.]+) s after it was started \((.*)\)")


class OnGpus(Ours):
    """A trainer of bftrainer on nodes that have these GPUs, or, on the CPU, simulated ones."""

    def __init__(self, where: Path, options: argparse.Namespace, script: str, *words: object) -> None:
        self.nodes = NODES[: options.nodes]
        os.environ["GPUS_A_NODE"] = "0" if options.is_shared else str(options.each)
        self._each, self._command = options.each, ["python", script, *map(str, words)]
        super().__init__(where, options.parameters, "native", options.each)
        self.name, self.site = "bftrainer", self._site

    def command(self) -> list[str]:
        """Return the command of each worker."""
        return self._command

    def one_of(self, host: str) -> int:
        """The process of one worker of a node."""
        return self.site.trains_on(host, self._each)[0]

    def grow(self, count: int) -> None:
        """Let nodes join until `count` train."""
        for host in NODES[len(self.hosts) : count]:
            self.join(host)
        self.until_size(count)

    def until_size(self, count: int) -> None:
        """Wait for a step on `count` nodes.

        Raises:
            RuntimeError: there was none.
        """
        if baselines.until(self, time.time(), count) is None:
            raise RuntimeError(f"no step on {count} nodes: see the logs in {self.site.root}")

    def first(self) -> str:
        """The node of rank 0."""
        return self._members()[0]

    def last_step(self, host: str) -> tuple[int, ...]:
        """Return a node's note of its last step: its number, and what the script adds."""
        lines = (self.where / f"{host}.steps").read_text().splitlines()
        return tuple(map(int, next(line for line in reversed(lines) if line.endswith(";")).split()[2:-1]))

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Wait until something is true."""
        self.site.until(condition, PATIENCE_S, what)

    def until_ended(self) -> None:
        """Wait for the trainer's end."""
        self.until(lambda: self.site.trainer("ours")["ended_at"], "an end of the trainer")

    def saved(self) -> int | None:
        """The step of the newest checkpoint."""
        files = self.site.trainers.glob("1-ours-*/**/g*-s*.pt")
        return max((int(file.stem.partition("-s")[2]) for file in files), default=None)

    def newcomers(self) -> list[str]:
        """Return the times of the parts of newcomers' starts, as they noted them."""
        logs = sorted(self.logs().glob("*.log"))
        return [f"{total} s ({parts})" for log in logs for total, parts in NOTE.findall(log.read_text())]


def fault(own: OnGpus, kind: str, number: int, host: str, count: int) -> Change:
    """Send a signal to one worker of a node of `count`, and measure those that stay."""
    staying = [other for other in own.hosts if other != host]

    def strike() -> None:
        os.kill(own.one_of(host), number)

    return baselines.changed(own, kind, count, count - 1, strike, staying)


class system:  # noqa: N801  used as a function
    """A trainer on GPUs, as a context."""

    def __init__(self, options: argparse.Namespace, script: str, *words: object) -> None:
        self._options, self._script, self._words = options, script, words

    def __enter__(self) -> OnGpus:
        self._where = tempfile.TemporaryDirectory(prefix="gpu-")
        self._own = OnGpus(Path(self._where.name), self._options, self._script, *self._words)
        return self._own

    def __exit__(self, *_: object) -> None:
        self._own.close()
        self._where.cleanup()


def row(change: Change) -> tuple[str, bool]:
    """A change as a line, and whether it came to a step."""
    if change.pause_s is None or change.first_step_s is None:
        return f"{change.kind:12}{change.before} -> {change.after}  never came to a step", False
    times = f"pause {change.pause_s:.3f} s, first step {change.first_step_s:.3f} s"
    return f"{change.kind:12}{change.before} -> {change.after}  {times}", True
