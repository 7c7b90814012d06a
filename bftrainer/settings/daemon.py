"""The settings of the daemon as a service: its places, its log, its metrics."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator

from bftrainer.settings.client.places import SOCKET, default_state_dir, whole_path
from bftrainer.settings.setting import Positive, Section, SetBy, Setting

AGENTS_SOCKET = "agents.sock"
"""The name of the socket of agents, which lies in the state directory."""


class DaemonSettings(Section):
    """Where the daemon keeps its state, where it can be reached, and what it tells of itself."""

    title: ClassVar[str] = "Daemon"

    state_dir: Annotated[
        Path,
        Setting(
            help="folder of the store, the socket and the daemon's key, on a disk of this machine",
            more="Only its owner can enter it. See "
            "[Where the state lies](site-mode.md#where-the-state-lies).",
            set_by=SetBy.USER,
            commands=("daemon", "pilot"),
            default_words="~/.local/state/bftrainer",
        ),
    ] = Field(default_factory=default_state_dir)
    socket: Annotated[
        Path,
        Setting(
            help="Unix socket where users of this machine reach the daemon",
            more="With `mode: site` it must be outside `state_dir`, in a folder that all users can enter.",
            set_by=SetBy.USER,
            default_words="daemon.sock in state_dir",
        ),
    ] = Field(default_factory=lambda data: data.get("state_dir", default_state_dir()) / SOCKET)
    state_dir_on_network: Annotated[
        bool,
        Setting(
            help="start even though state_dir is on a network file system",
            more="Two machines can then use one store, and a store can break: only where you know that locks "
            "and shared memory work there.",
        ),
    ] = False
    metrics_port: Annotated[
        Annotated[int, Field(ge=1, le=65_535)] | None,
        Setting(
            help="serve /metrics for Prometheus on this port of 127.0.0.1; none: on the socket only",
            none_word="none",
        ),
    ] = None
    log_format: Annotated[
        Literal["auto", "text", "logfmt"],
        Setting(
            help="format of the daemon's log: text, logfmt; auto: logfmt where journald reads the log, else "
            "text",
        ),
    ] = "auto"

    keep_events_days: Annotated[
        Positive | None,
        Setting(
            help="how long the store keeps events with their plans and actions, reports and pauses, in days; "
            "never: it deletes none",
            more="See [Growth](decide.md#growth).",
            unit="days",
            live=True,
            none_word="never",
        ),
    ] = 30.0

    @field_validator("state_dir", "socket")
    @classmethod
    def _whole_path(cls, path: Path) -> Path:
        return whole_path(path)

    @property
    def agents_socket(self) -> Path:
        """The Unix socket of agents of this machine, for the daemon's own user only."""
        return self.state_dir / AGENTS_SOCKET

    @property
    def database(self) -> Path:
        """The file of the store."""
        return self.state_dir / "bftrainer.db"
