"""The settings of pilots that are batch jobs, whatever the batch system."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field, field_validator

from bftrainer.settings.client.places import default_state_dir
from bftrainer.settings.setting import Positive, Section, Setting

PILOT_MAX_S: Mapping[str, float] = {"preempt": 14_400.0, "window": 900.0}
"""`pilot_max_s` where it is left open, by whether the batch system takes nodes back (preempt) or not
(window). Without preemption, nothing else bounds how long a main job waits if the daemon is gone. With it,
Slurm still refuses reservations that begin before."""

COMMANDS = ("daemon", "pilot")


class PilotSettings(Section):
    """What pilots run that are jobs of a batch system, and how that is asked."""

    title: ClassVar[str] = "Pilots"

    pilot_template: Annotated[
        str,
        Setting(help="file with the batch script of pilots (jinja2); empty: bftrainer's own"),
    ] = ""
    pilot_python: Annotated[
        str,
        Field(min_length=1),
        Setting(help="the Python with bftrainer on the nodes", default_words="the daemon's own"),
    ] = sys.executable
    pilot_log_dir: Annotated[
        Path,
        Setting(
            help="mode single: folder in which pilots write what their agents print",
            more="Nodes write there, so it has to be on a file system that they share.",
            default_words="logs in state_dir",
        ),
    ] = Field(default_factory=lambda data: data.get("state_dir", default_state_dir()) / "logs")
    pilot_max_s: Annotated[
        Annotated[float, Field(ge=60, le=1e7, allow_inf_nan=False)] | None,
        Setting(
            help="longest time limit of a pilot; auto, by the batch system's mode: "
            + ", ".join(f"{limit_s:.0f} with mode {mode}" for mode, limit_s in PILOT_MAX_S.items()),
            unit="s",
            commands=COMMANDS,
            none_word="auto",
        ),
    ] = None
    claim_patience_s: Annotated[
        Positive,
        Setting(help="how long nodes are kept free for a main job that should start and does not", unit="s"),
    ] = 120.0
    command_timeout_s: Annotated[
        Positive,
        Setting(help="time for one of the batch system's commands before it is killed", unit="s"),
    ] = 20.0

    @field_validator("pilot_log_dir")
    @classmethod
    def _whole_path_of_logs(cls, path: Path) -> Path:
        return path.expanduser().absolute()

    def pilot_limit_s(self, mode: str) -> float:
        """The longest time limit of a pilot, in seconds, where the batch system preempts ("preempt") or does
        not ("window")."""
        return PILOT_MAX_S[mode] if self.pilot_max_s is None else self.pilot_max_s
