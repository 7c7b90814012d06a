"""The settings that bound what users, clients and agents may use of the daemon.

A bound is a setting where sites differ: in their policy, their size, their disks. Others are constants beside
their use; docs/site-mode.md lists the fixed ones.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from bftrainer.settings.setting import Positive, Section, SetBy, Setting

AT_SUBMIT = "the daemon refuses the spec"
NOT_ADMINS = "Admins may go beyond it, and so may the user of a daemon with `mode: single`."


class LimitSettings(Section):
    """What users, clients and agents may use of the daemon at most. [Site mode](site-mode.md#bounds) has the
    fixed bounds."""

    title: ClassVar[str] = "Limits"

    max_studies_per_user: Annotated[
        int,
        Field(ge=1, le=100_000),
        Setting(
            help="studies of one user that have not ended",
            unit="studies",
            live=True,
            set_by=SetBy.SITE,
            at_bound="the daemon refuses the user's next one",
            told="the user (status 429), to wait or cancel some",
        ),
    ] = 20
    max_trials: Annotated[
        int,
        Field(ge=1, le=100_000),
        Setting(
            help="trials of one study",
            more="The daemon keeps the trials of unfinished studies in memory.",
            unit="trials",
            live=True,
            at_bound="the daemon refuses the study",
            told="the user, with the bound",
        ),
    ] = 5000
    max_spec_kb: Annotated[
        int,
        Field(ge=1, le=256),
        Setting(
            help="largest spec",
            more="`bftrainer submit` reads no more than that of a file.",
            unit="kB",
            set_by=SetBy.USER,
            at_bound=AT_SUBMIT,
            told="the user, with the spec's size",
        ),
    ] = 32
    max_submits_per_minute: Annotated[
        int,
        Field(ge=1, le=1_000_000),
        Setting(
            help="specs, studies, changes of priority, and orders on studies (all but the first cancel) that "
            "one user sends in a minute, also refused ones, in the long run; as many at once",
            more=NOT_ADMINS,
            unit="specs",
            live=True,
            set_by=SetBy.SITE,
            at_bound="the daemon refuses the user's next one until so much time has passed",
            told="the user (status 429), with the seconds to wait",
        ),
    ] = 120
    max_trainers_per_user: Annotated[
        int,
        Field(ge=1, le=1_000_000),
        Setting(
            help="trainers of one user that have not ended, those of studies included",
            more="Admins may submit beyond it, and so may the user of a daemon with `mode: single`.",
            unit="trainers",
            live=True,
            set_by=SetBy.SITE,
            at_bound="the daemon refuses the user's next one; trials of studies wait, in site mode",
            told="the user (status 429), to wait or cancel some",
        ),
    ] = 1000
    max_trainers: Annotated[
        int,
        Field(ge=1, le=1_000_000),
        Setting(
            help="trainers of all users that have not ended",
            unit="trainers",
            live=True,
            at_bound="the daemon refuses the next one",
            told="its user (status 503), to try later",
        ),
    ] = 20_000
    start_timeout_s: Annotated[
        Positive | None,
        Setting(
            help="time in which a worker has to be ready, and to join the other members; never: no limit",
            more="A native script is ready when it reaches `elastic.Run`. Make it long enough for the "
            "slowest start of an honest script: until then its nodes are kept for it, though others wait.",
            unit="s",
            none_word="never",
            at_bound="the worker is killed, which counts as a failure of its program (`max_failures`); until "
            "its trainer runs, it gets only nodes that no other trainer wants",
            told="the user, in `show` and in the worker's log",
        ),
    ] = 1800.0
    silent_start_s: Annotated[
        Positive | None,
        Setting(
            help="time after which a user is told of a script that is not ready; never: at no time",
            more="A native script that never reaches `elastic.Run` runs on each node by itself, to its end.",
            unit="s",
            none_word="never",
            at_bound="nothing: the workers go on",
            told="the user, in `list`, `show` and `logs`, with what to do; the log",
        ),
    ] = 30.0
    progress_timeout_s: Annotated[
        Positive | None,
        Setting(
            help="time in which a trainer that has told of progress has to do so again, and in which its "
            "workers have to end when its work is done; never: no limit",
            more="A script under torchrun that tells of no progress is not watched.",
            unit="s",
            none_word="never",
            at_bound="the members are killed, which counts as a failure of their program (`max_failures`); "
            "until the trainer runs, it gets only nodes that no other trainer wants",
            told="the user, in `show` and in the workers' logs",
        ),
    ] = 7200.0
    max_priority: Annotated[
        float,
        Field(gt=0, le=1e6, allow_inf_nan=False),
        Setting(
            help="highest priority in a spec",
            more="With 1, users order their own trainers below those of others, never above. " + NOT_ADMINS,
            live=True,
            set_by=SetBy.SITE,
            at_bound=AT_SUBMIT,
            told="the user, with the bound",
        ),
    ] = 1.0
    max_weight: Annotated[
        float,
        Field(gt=0, le=1e6, allow_inf_nan=False),
        Setting(
            help="highest weight in a spec",
            more=NOT_ADMINS,
            live=True,
            set_by=SetBy.SITE,
            at_bound=AT_SUBMIT,
            told="the user, with the bound",
        ),
    ] = 1.0
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
    max_requests_per_second: Annotated[
        float,
        Field(ge=1, le=100_000, allow_inf_nan=False),
        Setting(
            help="requests of one user (or address, as above) in a second; after a pause, four times as many "
            "at once",
            unit="requests",
            live=True,
            at_bound="the daemon refuses further requests, most of them before it reads them",
            told="status 429 with the bound; the command line tries again for a while",
        ),
    ] = 100.0
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
    max_store_mb: Annotated[
        int,
        Field(ge=1, le=10_000_000),
        Setting(
            help="most that the store holds",
            more="The file itself does not shrink: freed pages are used again. Its log (`-wal`) takes up "
            "to 0.5 GB more while somebody reads the database for long.",
            unit="MB",
            live=True,
            at_bound="the daemon deletes the oldest rows of what takes the most, before their time: events, "
            "or reports, pauses, ended trainers or ended studies of the user who has the most",
            told="`bftrainer status` tells admins how many of what, and so does the log",
        ),
    ] = 4000
    min_free_mb: Annotated[
        int,
        Field(ge=0, le=10_000_000),
        Setting(
            help="least free space on the disk of state_dir, and 1,000 more files; 0: nobody looks",
            unit="MB",
            live=True,
            at_bound="the daemon is degraded and not ready, and goes on",
            told="status, `/readyz` and the log say how much is left",
        ),
    ] = 200
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
