"""The settings of what is watched on Slurm, and of how pilots get there."""

from __future__ import annotations

import shlex
from typing import Annotated, ClassVar, Literal

from pydantic import field_validator

from bftrainer.settings.setting import Section, Setting

COMMANDS = ("daemon", "pilot")


class SlurmSettings(Section):
    """Which part of Slurm is watched, and how pilots are submitted there. [Slurm](slurm.md) explains it
    all."""

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
