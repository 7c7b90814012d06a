"""The settings of pilots on Slurm, and of what is watched there."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator

from bftrainer.settings.daemon import default_state_dir
from bftrainer.settings.setting import Positive, Section, Setting

PILOT_MAX_S: Mapping[str, float] = {"preempt": 14_400.0, "window": 900.0}
"""`pilot_max_s` where it is left open, by `slurm_mode`. Without preemption, nothing else bounds how long a
main job waits if the daemon is gone. With it, Slurm still refuses reservations that begin before."""

COMMANDS = ("daemon", "pilot")


class SlurmSettings(Section):
    """Which part of Slurm is watched, and how pilots are submitted. [Slurm](slurm.md) explains it all."""

    title: ClassVar[str] = "Slurm"

    slurm_partition: Annotated[
        str,
        Setting(
            help="the partition that pilots go to; empty: Slurm's default one", commands=(*COMMANDS, "record")
        ),
    ] = ""
    slurm_watch: Annotated[
        str,
        Setting(
            help="the partitions whose nodes are watched, as a,b; empty: the one of the pilots",
            commands=("record",),
        ),
    ] = ""
    slurm_qos: Annotated[
        str,
        Setting(
            help="the QOS of pilots; empty: the user's default",
            more="[bftrainer-qos.sh](../slurm/bftrainer-qos.sh) makes one that keeps pilots out of limits "
            "and shares.",
            commands=COMMANDS,
        ),
    ] = ""
    slurm_account: Annotated[
        str, Setting(help="the account of pilots; empty: the user's default", commands=COMMANDS)
    ] = ""
    slurm_mode: Annotated[
        Literal["preempt", "window"],
        Setting(
            help="with preempt, Slurm takes nodes back from pilots; with window, it does not, so that every "
            "pilot has a time limit that ends before its hole does",
            commands=COMMANDS,
        ),
    ] = "preempt"
    slurm_options: Annotated[
        str,
        Setting(
            help="more options of sbatch for pilots, as on its command line",
            more="Such as `--constraint=ib`.",
        ),
    ] = ""
    slurm_cloud: Annotated[
        bool,
        Setting(
            help="also use nodes of state CLOUD while they are up",
            more="A node that pilots hold is not idle, so Slurm does not power it down. Other nodes that a "
            "site powers down when they are idle (`SuspendTime`) stay up likewise: name them in "
            "`exclude_nodes` if they are not to.",
        ),
    ] = False
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
            help="longest time limit of a pilot; auto: "
            + ", ".join(f"{limit_s:.0f} with slurm_mode {mode}" for mode, limit_s in PILOT_MAX_S.items()),
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

    @field_validator("slurm_options")
    @classmethod
    def _options_of_sbatch(cls, text: str) -> str:
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise ValueError(f"{error}; quote it like a shell's line") from error
        if any(not word.startswith("-") for word in words):
            raise ValueError("options only, such as --constraint=gpu: the script is the pilots' template")
        return text

    @property
    def pilot_limit_s(self) -> float:
        """The longest time limit of a pilot, in seconds."""
        return PILOT_MAX_S[self.slurm_mode] if self.pilot_max_s is None else self.pilot_max_s
