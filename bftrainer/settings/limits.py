"""The settings that bound what users, clients and agents may use of the daemon."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from bftrainer.settings.agent_limits import AgentLimits
from bftrainer.settings.answer_limits import AnswerLimits
from bftrainer.settings.setting import Seconds, Setting
from bftrainer.settings.user_limits import UserLimits


class LimitSettings(AnswerLimits, AgentLimits, UserLimits):
    """What users, clients and agents may use of the daemon at most. [Site mode](site-mode.md#bounds) says
    what happens at each bound, and who is told what."""

    title: ClassVar[str] = "Limits"

    max_connections: Annotated[
        int,
        Field(ge=8, le=100_000),
        Setting(
            help="connections of users at once, on the Unix socket and over TCP; each serves one request",
            unit="connections",
            at_bound="the daemon closes the longest idle connection of the user with the most; if none is "
            "idle, it refuses new ones",
            told="status 503 with the bound; the command line tries again for a while",
        ),
    ] = 512
    max_connections_per_user: Annotated[
        int,
        Field(ge=2, le=100_000),
        Setting(
            help="connections of one user at once, with the requests that are in work; over TCP, of one "
            "address until munge has told the user",
            unit="connections",
            at_bound="the daemon closes the user's longest idle connection; if none is idle, it refuses new "
            "ones",
            told="status 503 with the bound; the command line tries again for a while",
        ),
    ] = 32
    requests_per_second: Annotated[
        float,
        Field(ge=1, le=100_000, allow_inf_nan=False),
        Setting(
            help="requests of one user (or address, as above) in a second; after a pause, four times as many "
            "at once",
            unit="requests",
            at_bound="the daemon refuses further requests, most of them before it reads them",
            told="status 429 with the bound; the command line tries again for a while",
        ),
    ] = 100.0
    request_timeout_s: Annotated[
        float,
        Field(gt=0, le=3600, allow_inf_nan=False),
        Setting(
            help="time for a client to send a request's head, then its body, and to take the answer",
            unit="s",
            at_bound="the daemon closes the connection",
            told="status 408, where no answer has begun",
        ),
    ] = 10.0
    user_lookup_s: Annotated[
        float,
        Field(gt=0, le=3600, allow_inf_nan=False),
        Setting(
            help="time for the directory of users (NSS: files, LDAP, sssd) to say which user has a number; "
            "the answer counts for a minute",
            unit="s",
            at_bound="a user that was known before is served; the daemon refuses others",
            told="status 503 with the bound; the command line tries again for a while",
        ),
    ] = 5.0
    max_agents: Annotated[
        int,
        Field(ge=1, le=1_000_000),
        Setting(
            help="connections of agents at once: at least the machine's nodes",
            more="Agents have a listener of their own, so that users' connections never keep them out.",
            unit="connections",
            at_bound="the daemon closes connections that have not proven to be an agent's, the longest idle "
            "first; an agent that finds no place tries again",
            told="status 503; the agent's log",
        ),
    ] = 10_000
    max_request_kb: Annotated[
        int,
        Field(ge=1, le=1_000_000),
        Setting(
            help="largest body of a request",
            unit="kB",
            at_bound="the daemon refuses the request before it reads the rest",
            told="status 413 with the bound",
        ),
    ] = 64
    log_lines_per_minute: Annotated[
        int,
        Field(ge=10, le=1_000_000),
        Setting(
            help="lines of one kind in the daemon's log in a minute",
            more="A kind is an event, or one place of the program that writes a message.",
            at_bound="the daemon leaves out further lines of this kind until the minute is over",
            told="a line `lines_left_out` tells how many",
        ),
    ] = 300
    log_kb_per_minute: Annotated[
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
    min_free_mb: Annotated[
        int,
        Field(ge=0, le=10_000_000),
        Setting(
            help="least free space on the disk of state_dir",
            unit="MB",
            live=True,
            at_bound="the daemon is degraded and not ready, and goes on",
            told="status, `/readyz` and the log say how much is free",
        ),
    ] = 200
    min_free_files: Annotated[
        int,
        Field(ge=0, le=1_000_000_000),
        Setting(
            help="least number of files (inodes) that the disk of state_dir can still take",
            unit="files",
            live=True,
            at_bound="the daemon is degraded and not ready, and goes on",
            told="status, `/readyz` and the log say how many are left",
        ),
    ] = 1000
    store_max_mb: Annotated[
        int,
        Field(ge=1, le=10_000_000),
        Setting(
            help="most that the store holds",
            more="The file itself does not shrink: freed pages are used again. Its log (`-wal`) takes up "
            "to 0.5 GB more while somebody reads the database for long.",
            unit="MB",
            live=True,
            at_bound="the daemon deletes the oldest rows of what takes the most, before their time: reports, "
            "pauses, events, or trainers that have ended",
            told="`bftrainer status` tells admins how many of what, and so does the log",
        ),
    ] = 4000
    queued_writes: Annotated[
        int,
        Field(ge=8, le=1_000_000),
        Setting(
            help="writes that wait in memory while the store does not answer",
            live=True,
            at_bound="the oldest pauses, then the oldest events with their plans and actions are left out of "
            "the history; the latest state of each trainer is always stored",
            told="`bftrainer status` and the log say how many",
        ),
    ] = 4000
    keep_reports_every_s: Annotated[
        Seconds,
        Setting(
            help="the store keeps at most one report of a trainer per so many seconds",
            unit="s",
            live=True,
            at_bound="the latest report of the time is kept, the others are not",
            told="`bftrainer show` has the latest report at any time",
        ),
    ] = 5.0
    helper_memory_mb: Annotated[
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
    helper_connections: Annotated[
        int,
        Field(ge=64, le=1_000_000),
        Setting(
            help="connections to such a helper at once",
            more="A worker needs two to four. Horovod's take 0.5 MB of `helper_memory_mb` each.",
            unit="connections",
            at_bound="as with its memory",
            told="the log names the trainer",
        ),
    ] = 4096
    max_queue_mb: Annotated[
        int,
        Field(ge=1, le=2000),
        Setting(
            help="size of Slurm's queue, as squeue prints it, of which the daemon reads the rest no more",
            more="A job takes 0.2 kB, and more where its user names many nodes.",
            unit="MB",
            at_bound="waiting jobs of the lowest priorities are not seen: no node is given back for them",
            told="the log says so",
        ),
    ] = 64
