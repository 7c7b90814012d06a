"""Messages between the daemon or an agent and the processes that help them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from bftrainer.wire.messages.fields import Schema

# daemon -> Horovod driver, lines of JSON


class World(Schema):
    """The nodes, by Horovod's names for them, that must train together next; empty: none are. `slots`: how
    many workers each runs; left out where that is one."""

    type: Literal["world"]
    generation: int
    hosts: list[str]
    slots: list[int] = Field(default_factory=list)


class Gone(Schema):
    """A node's workers have ended."""

    type: Literal["gone"]
    host: str


class End(Schema):
    """The trainer has no workers any more: the driver must end."""

    type: Literal["end"]


# Horovod driver -> daemon


class Up(Schema):
    """The driver is connected; workers reach its rendezvous at this port."""

    type: Literal["up"]
    port: int


class Formed(Schema):
    """It has let these workers connect to each other, in the order of ranks."""

    type: Literal["formed"]
    generation: int
    hosts: list[str]


class Asking(Schema):
    """A worker waits to be let go: for the first time, or again because its world ended."""

    type: Literal["asking"]
    host: str


class Torn(Schema):
    """A worker of this generation died while all connected to each other."""

    type: Literal["torn"]
    generation: int


class Lost(Schema):
    """The connection to the driver has ended. `DriverProcesses` says so, not the driver."""

    type: Literal["lost"]


class DriverFailed(Schema):
    """No driver could be started, for this reason. `DriverProcesses` says so."""

    type: Literal["failed"]
    reason: str


# agent -> warm process, packets of JSON


class Import(Schema):
    """Do the imports of a script."""

    type: Literal["import"]
    script: str


class Fork(Schema):
    """Fork a worker that runs `words`; two file descriptors come along. The answer is {"pid": number}.

    `title`: what the process table shows; `gated`: wait for `go` before the script.
    """

    type: Literal["fork"]
    title: str
    words: list[str]
    workdir: str
    environ: dict[str, str]
    gated: bool
