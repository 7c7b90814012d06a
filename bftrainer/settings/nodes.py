"""The settings of nodes, pilots and the agents that run on them, whatever the batch system."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field, field_validator

from bftrainer import nodesets
from bftrainer.settings.headroom import NONE, Headroom, Promise, as_text, headroom_of, promise_of
from bftrainer.settings.schedulers import SCHEDULERS
from bftrainer.settings.setting import Positive, Seconds, Section, Setting
from bftrainer.settings.site import check_placeholders, host_and_port


def _known_scheduler(name: str) -> str:
    if name not in SCHEDULERS:
        raise ValueError(f"give one of {', '.join(SCHEDULERS)}")
    return name


class NodeSettings(Section):
    """How nodes are watched, held with pilots and given back, and how agents and workers behave there."""

    title: ClassVar[str] = "Nodes"

    scheduler: Annotated[
        str,
        AfterValidator(_known_scheduler),
        Setting(
            help="whose idle nodes to use: a batch system's, or (local) slots of this machine that a log "
            "calls idle",
            choices=tuple(SCHEDULERS),
            commands=("daemon", "record"),
        ),
    ] = "slurm"
    poll_s: Annotated[
        Positive,
        Setting(help="time between two polls of the scheduler", unit="s", live=True, commands=("daemon",)),
    ] = 0.5
    poll_max_s: Annotated[
        Positive,
        Setting(
            help="longest time between two polls, while we hold nothing and nothing changes",
            unit="s",
            live=True,
        ),
    ] = 5.0
    failed_polls: Annotated[
        int,
        Field(ge=1, le=1000),
        Setting(
            help="failed polls in a row before the status says degraded; it also does if no poll is answered "
            "for the time of so many after poll_max_s",
            unit="polls",
            live=True,
        ),
    ] = 3
    debounce_s: Annotated[
        Seconds,
        Setting(
            help="how long a node must be idle before it joins the pool",
            unit="s",
            live=True,
            commands=("daemon",),
        ),
    ] = 0.0
    rejoin_s: Annotated[
        Seconds,
        Setting(
            help="how long a node that was given back to main jobs stays out of the pool at least: where one "
            "came others may follow",
            unit="s",
            live=True,
        ),
    ] = 3.0
    min_hole_s: Annotated[
        Seconds,
        Setting(
            help="nodes whose hole is expected to end within this time are left alone", unit="s", live=True
        ),
    ] = 30.0
    headroom: Annotated[
        str,
        Setting(
            help="idle nodes that are left to main jobs, of each kind: a number, a share of those that are "
            "idle or ours such as 10%, or auto",
            more="A kind is what has the same partitions and GRES. `auto`: as many as main jobs have been "
            "seen to ask for at once, 10% at most. See [Headroom](headroom.md#headroom).",
            live=True,
            commands=("daemon",),
        ),
    ] = "auto"
    promise: Annotated[
        Promise | None,
        Setting(
            help="by how much main jobs may wait longer than those with no node of ours in their way, such "
            "as {median_s: 0.2, p99_s: 1}; where that is at risk, more idle nodes are left to them; none: no "
            "such promise",
            more="In the environment: `median_s=0.2,p99_s=1`. See [A promise](headroom.md#a-promise).",
            live=True,
            none_word=NONE,
        ),
    ] = None
    exclude_nodes: Annotated[
        str, Setting(help="nodes never to use, such as n[01-08],gpu3; empty: none", live=True)
    ] = ""
    vacate_s: Annotated[
        Seconds,
        Setting(
            help="time that workers have to leave a node on which a main job can start", unit="s", live=True
        ),
    ] = 0.3
    vacate_write_s: Annotated[
        Seconds,
        Setting(
            help="how much longer a node is kept, after its workers are gone, to write a state that no other "
            "node has",
            more="A main job waits for it; less than Slurm's `KillWait`. 0: what is not written within "
            "`vacate_s` is lost, see [Checkpoints](elastic.md#checkpoints).",
            unit="s",
        ),
    ] = 0.0
    spare_s: Annotated[
        Seconds,
        Setting(help="how long a pilot is kept that no trainer needs any more", unit="s", live=True),
    ] = 10.0
    submissions_per_minute: Annotated[
        int,
        Field(ge=1, le=100_000),
        Setting(
            help="most pilots submitted in a minute; half of them for one user while others have trainers",
            unit="pilots",
            live=True,
        ),
    ] = 120
    pilot_start_s: Annotated[
        Positive, Setting(help="how long a pilot may take to report", unit="s", live=True)
    ] = 60.0
    listen: Annotated[
        str,
        Setting(
            help="where agents connect, as host:port; empty: a free port of `address`, kept from then on",
            commands=("daemon",),
        ),
    ] = ""
    address: Annotated[
        str,
        Field(min_length=1),
        Setting(
            help="where nodes reach this machine: agents connect there",
            more="The stores of `launcher: torchrun` listen there, and Horovod's workers connect there to "
            "their driver.",
            commands=("daemon", "pilot"),
        ),
    ] = "127.0.0.1"
    reconnect_s: Annotated[
        Positive,
        Setting(
            help="how long an agent may take to connect again, after a broken connection or a restart of the "
            "daemon",
            unit="s",
            live=True,
        ),
    ] = 5.0
    orphan_s: Annotated[
        Positive,
        Setting(
            help="how long an agent goes on without a daemon",
            more="Then its workers write a checkpoint and leave.",
            unit="s",
            commands=("daemon",),
        ),
    ] = 60.0
    stop_grace_s: Annotated[
        Positive,
        Setting(help="time for a worker to checkpoint and leave before it is killed", unit="s"),
    ] = 15.0
    warm_pool: Annotated[
        bool,
        Setting(
            help="keep a process with torch loaded on every node, so that workers start quickly",
            more="See [Warm pool](elastic.md#warm-pool).",
        ),
    ] = True
    trainer_dir: Annotated[
        str,
        Field(min_length=1),
        Setting(
            help="folder of trainers' logs and checkpoints: relative to a trainer's workdir, or absolute; "
            "{user} is the user who submitted it",
            more="Such as `/scratch/{user}/bftrainer`, where root makes each user's folder.",
        ),
    ] = ".bftrainer"

    @field_validator("headroom", mode="before")
    @classmethod
    def _number_as_text(cls, value: object) -> object:
        return as_text(value)

    @field_validator("promise", mode="before")
    @classmethod
    def _promise_from_text(cls, value: object) -> object:
        return promise_of(value)

    @field_validator("headroom")
    @classmethod
    def _known_headroom(cls, text: str) -> str:
        headroom_of(text)
        return text

    @field_validator("exclude_nodes", mode="before")
    @classmethod
    def _joined(cls, nodes: object) -> object:
        if isinstance(nodes, list) and all(isinstance(node, str) for node in nodes):
            return ",".join(nodes)
        return nodes

    @field_validator("exclude_nodes")
    @classmethod
    def _nodes_to_exclude(cls, text: str) -> str:
        nodesets.expand(text, operations=True)
        return text

    @field_validator("listen")
    @classmethod
    def _host_and_port(cls, text: str) -> str:
        return host_and_port(text)

    @field_validator("trainer_dir")
    @classmethod
    def _only_user_is_filled_in(cls, folder: str) -> str:
        check_placeholders(folder)
        return folder

    @cached_property
    def left_to_main_jobs(self) -> Headroom:
        """The parsed `headroom`."""
        return headroom_of(self.headroom)

    @cached_property
    def excluded(self) -> frozenset[str]:
        """The names of the nodes never to use."""
        return frozenset(nodesets.expand(self.exclude_nodes, operations=True))
