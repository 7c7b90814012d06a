"""The parts that a scheduler is made from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bftrainer.ports import Clock, Scheduler, Store
from bftrainer.settings.values import Settings

NOWHERE, NOBODY = "nowhere:0", "0" * 8
"""Address and instance of a daemon that submits no pilots."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedLog:
    """The log that says when nodes are idle, for schedulers on this machine; `path` None: a generated one.

    It names up to `nodes` nodes and runs at `speed` seconds per second, from `begin` (log time, Unix seconds;
    None: from its start). `seed` is of a generated one. Each node has `gpus` GPUs. Instead of any log,
    `main_jobs` names a file to which main jobs are added; until then all nodes are idle.
    """

    path: Path | None
    nodes: int
    speed: float
    seed: int
    begin: float | None
    gpus: int = 0
    main_jobs: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The daemon's settings and surroundings. Agents find the daemon at `agents_at`: a socket's path, or
    host:port. `say` tells the operator something in a sentence."""

    settings: Settings
    store: Store
    clock: Clock
    agents_at: str
    log: PlayedLog
    say: Callable[[str], None]


class Make(Protocol):
    """The function `make` of a scheduler's module."""

    def __call__(self, context: Context) -> Scheduler:
        """The scheduler as the settings have it. Raises `BftrainerError` if it cannot work so."""
        ...
