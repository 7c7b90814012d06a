"""The settings of what is watched on Slurm, and of how pilots get there."""

from __future__ import annotations

import shlex
from typing import Annotated, ClassVar, Literal, Self

from pydantic import field_validator, model_validator

from bftrainer.settings.setting import Section, Setting

COMMANDS = ("daemon", "pilot")


GPU_OPTIONS = frozenset({"--gres", "--gpus", "--gpus-per-node", "--gpus-per-task", "--gpus-per-socket"})


def asks_for_gpus(option: str) -> bool:
    """Return whether an sbatch option asks for GPUs or other generic resources; `--gres-flags` does not."""
    return option.partition("=")[0] in GPU_OPTIONS or option.startswith("-G")


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
            more="Window works on the default partition and needs no administrator.",
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
    harvest: Annotated[
        Literal["nodes", "gpus"],
        Setting(
            help="with nodes, pilots have whole idle nodes; with gpus, also free GPUs of nodes that main "
            "jobs use in part, with cores and memory in proportion",
            more="The pilots' partition needs `OverSubscribe=NO` for it. See [GPU nodes](gpu.md).",
            commands=COMMANDS,
        ),
    ] = "nodes"
    slurm_cloud: Annotated[
        bool,
        Setting(
            help="also use nodes of state CLOUD while they are up",
            more="A node that pilots hold is not idle, so Slurm does not power it down. Other nodes that a "
            "site powers down when they are idle (`SuspendTime`) stay up likewise: name them in "
            "`exclude_nodes` if they are not to.",
        ),
    ] = False

    @model_validator(mode="after")
    def _gpus_are_asked_for_once(self) -> Self:
        own = [word for word in shlex.split(self.slurm_options) if asks_for_gpus(word)]
        if self.harvest == "gpus" and own:
            raise ValueError(
                f"harvest gpus asks for the free GPUs of each node itself; take {own[0]} out of slurm_options"
            )
        return self

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
