"""The settings of what is watched on LSF, and of how pilots get there."""

from __future__ import annotations

import shlex
from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator

from bftrainer.settings.setting import Section, Setting

COMMANDS = ("daemon", "pilot")


class LsfSettings(Section):
    """Which part of LSF is watched, and how pilots are submitted there. [LSF](lsf.md) explains it
    all."""

    title: ClassVar[str] = "LSF"

    lsf_queue: Annotated[
        str,
        Setting(help="the queue that pilots go to; empty: LSF's default one", commands=COMMANDS),
    ] = ""
    lsf_mode: Annotated[
        Literal["preempt", "window"],
        Setting(
            help="with preempt, LSF takes hosts back from pilots; with window, it does not, so that every "
            "pilot has a run limit that ends before its hole does",
            commands=COMMANDS,
        ),
    ] = "preempt"
    lsf_submission: Annotated[
        Literal["plain", "easy", "expert"],
        Setting(
            help="how a pilot gets its host: plain LSF; Summit's easy mode, which chooses the host itself; "
            "or its expert mode",
            more="`share: gpu` needs plain.",
            commands=COMMANDS,
        ),
    ] = "plain"
    lsf_project: Annotated[
        str, Setting(help="the project of pilots; empty: the user's default", commands=COMMANDS)
    ] = ""
    lsf_options: Annotated[
        str,
        Setting(
            help="more options of bsub for pilots, as on its command line",
            more="Such as `-alloc_flags 'gpumps smt1'`.",
        ),
    ] = ""
    lsf_select: Annotated[
        str,
        Setting(
            help="which hosts are watched, as LSF's -R says it; empty: all",
            more="On Summit `select[CN]`: hosts that compute.",
            commands=("record",),
        ),
    ] = ""
    lsf_hosts: Annotated[
        str,
        Setting(help="of these hosts or host groups only, as a,b; empty: all", commands=("record",)),
    ] = ""
    lsf_launch_hosts: Annotated[
        str,
        Setting(help="hosts that only launch jobs, as patterns a*,b*: they are in no job and never ours"),
    ] = "batch*,login*"
    lsf_launch_slots: Annotated[
        int,
        Field(ge=0, le=1000),
        Setting(
            help="slots on a launch host that every job asks for besides those it computes on", unit="slots"
        ),
    ] = 0
    lsf_gpus: Annotated[
        Annotated[int, Field(ge=0, le=100)] | None,
        Setting(
            help="GPUs of each host; auto: as `bhosts -gpu` or `lshosts -gpu` says",
            more="On Summit 6: its GPUs are given out by jsrun. 0: pilots ask for none.",
            unit="GPUs",
            commands=COMMANDS,
            none_word="auto",
        ),
    ] = None
    lsf_plan_file: Annotated[
        str,
        Setting(
            help="the file in which LSF's planner says when jobs will start, and where; empty: none",
            more="lsb.allocation.plan.json in the folder logdir of LSF's cluster, where the parameter "
            "ALLOCATION_PLANNER is on.",
        ),
    ] = ""
    lsf_form: Annotated[
        Literal["json", "delimited"],
        Setting(help="how LSF's commands are to print: LSF before 10.1 fix pack 5 knows no json"),
    ] = "json"
    lsf_bin: Annotated[
        str,
        Setting(
            help="the folder with LSF's commands; empty: wherever PATH finds them",
            commands=(*COMMANDS, "record"),
        ),
    ] = ""

    @field_validator("lsf_options")
    @classmethod
    def _options_of_bsub(cls, text: str) -> str:
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise ValueError(f"{error}; quote it like a shell's line") from error
        if words and not words[0].startswith("-"):
            raise ValueError("options only, such as -R 'rusage[mem=1]': the script is the pilots' template")
        return text
