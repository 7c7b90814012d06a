"""The settings that bound what users, clients and agents may use of the daemon."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from bftrainer.settings.agent_limits import AgentLimits
from bftrainer.settings.answer_limits import AnswerLimits
from bftrainer.settings.connection_limits import ConnectionLimits
from bftrainer.settings.setting import Setting
from bftrainer.settings.store_limits import StoreLimits
from bftrainer.settings.study_limits import StudyLimits
from bftrainer.settings.user_limits import UserLimits


class LimitSettings(StoreLimits, AnswerLimits, AgentLimits, ConnectionLimits, UserLimits, StudyLimits):
    """What users, clients and agents may use of the daemon at most. [Site mode](site-mode.md#bounds) says
    what happens at each bound, and who is told what."""

    title: ClassVar[str] = "Limits"

    max_log_lines_per_minute: Annotated[
        int,
        Field(ge=10, le=1_000_000),
        Setting(
            help="lines of one kind in the daemon's log in a minute",
            more="A kind is an event, or one place of the program that writes a message.",
            unit="lines",
            at_bound="the daemon leaves out further lines of this kind until the minute is over",
            told="a line `lines_left_out` tells how many",
        ),
    ] = 300
    max_log_kb_per_minute: Annotated[
        int,
        Field(ge=10, le=1_000_000),
        Setting(
            help="size of all lines of the daemon's log in a minute",
            more="The first 10 lines of each kind are written all the same.",
            unit="kB",
            at_bound="the daemon leaves out further lines until the minute is over",
            told="lines `lines_left_out` tell how many of each kind",
        ),
    ] = 1000
    max_helper_memory_mb: Annotated[
        int,
        Field(ge=16, le=100_000),
        Setting(
            help="memory of a helper process through which the workers of one torchrun or Horovod trainer "
            "find each other",
            more="Beyond what it takes when it starts.",
            unit="MB",
            at_bound="the helper ends, or refuses more; other trainers have their own. Workers that train go "
            "on, those that have not met yet start anew",
            told="the log names the trainer",
        ),
    ] = 256
    max_helper_connections: Annotated[
        int,
        Field(ge=64, le=1_000_000),
        Setting(
            help="connections to such a helper at once",
            more="A worker needs two to four. Horovod's take 0.5 MB of `max_helper_memory_mb` each.",
            unit="connections",
            at_bound="as with its memory",
            told="the log names the trainer",
        ),
    ] = 4096
    max_squeue_mb: Annotated[
        int,
        Field(ge=1, le=2000),
        Setting(
            help="size of Slurm's queue, as squeue prints it, of which the daemon reads the rest no more",
            more="A job takes 0.2 kB, and more where its user names many nodes.",
            unit="MB",
            at_bound="waiting jobs of the lowest priorities are not seen: no node is given back for "
            "them before Slurm preempts or a pilot's time is over",
            told="status, `/readyz` and the log say so, with what to do",
        ),
    ] = 64
