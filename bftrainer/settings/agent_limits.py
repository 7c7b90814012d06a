"""The settings that bound what agents may use of the daemon."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from bftrainer.settings.setting import Section, Setting


class AgentLimits(Section):
    """What agents may use of the daemon at most: an agent runs as its user, who may put anything in its
    place."""

    max_newcomers: Annotated[
        int,
        Field(ge=8, le=100_000),
        Setting(
            help="connections at the agents' place that have not proven yet to be an agent's",
            unit="connections",
            live=True,
            at_bound="the oldest makes room; if that has just come, too, the new one is to come again",
            told="the log and status; an agent tries again at once",
        ),
    ] = 512
    max_metrics: Annotated[
        int,
        Field(ge=1, le=500),
        Setting(
            help="names of figures that a trainer's script may report",
            unit="names",
            at_bound="the first ones stay; figures with further names are dropped",
            told="the script's log says so once; admins find it in status",
        ),
    ] = 100
    max_message_kb: Annotated[
        int,
        Field(ge=64, le=4096),
        Setting(
            help="largest message of an agent",
            more="One that has proven nothing yet can send no larger one either.",
            unit="kB",
            live=True,
            at_bound="the daemon ends the connection before it reads the rest; the agent connects again",
            told="the log and status",
        ),
    ] = 64
    max_messages_per_second: Annotated[
        float,
        Field(ge=1, le=10_000, allow_inf_nan=False),
        Setting(
            help="messages of one agent in a second, over a while",
            more="An agent that was quiet may send twenty times as many at once. A message counts once more "
            "for every 4 kB. Agents merge reports of progress, and let a worker wait that says too much.",
            unit="messages",
            live=True,
            at_bound="the daemon reads no more until it is time; after 30 s of this it ends the pilot, and "
            "leaves the node alone for a while",
            told="the log and status, and the reason why the node is left alone",
        ),
    ] = 20.0
    max_unsent_kb: Annotated[
        int,
        Field(ge=256, le=1_000_000),
        Setting(
            help="what waits to be sent to one agent; for all together sixteen times as much",
            unit="kB",
            live=True,
            at_bound="the daemon ends the connection of the agent that leaves the most unread; it connects "
            "again and is told what is wanted",
            told="the log and status",
        ),
    ] = 4000
