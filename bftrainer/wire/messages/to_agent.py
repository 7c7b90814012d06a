"""Messages of the daemon to agents, and of agents to their workers. `launch.messages` makes most of them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from bftrainer.wire.messages.fields import Schema


class Challenge(Schema):
    """The first message of a connection, the only one that is not sealed."""

    type: Literal["challenge"]
    nonce: str


class HelloAnswer(Schema):
    """Answers a hello: welcome, or later, if the daemon has just started and knows no pilots yet."""

    type: Literal["welcome", "later"]


class Warm(Schema):
    """A program may be started here soon: have its imports done. `env`: what its spec adds."""

    type: Literal["warm"]
    command: list[str]
    workdir: str
    folder: str = ""
    env: dict[str, str]


class Start(Schema):
    """Start a worker, `delay_s` from now. Ignored unless `generation` is above that of what runs.

    `workers`: of how many processes it consists, each with a device of its own; `log`: the file for its
    output; `write_s`: how long the agent may write its state when it is told to end; `gated`: hold it before
    its script until `go`; `warm`: fork it from the warm process where that is possible; `turns`: it may
    run beside another of these, and they compute in turn; `worker`: the facts that `elastic` in it needs.
    """

    type: Literal["start"]
    trainer: int
    generation: int
    command: list[str]
    workdir: str
    folder: str = ""
    env: dict[str, str]
    log: str
    workers: int
    delay_s: float
    grace_s: float
    write_s: float = 0.0
    gated: bool
    warm: bool
    turns: bool = False
    worker: dict[str, Any]


class Go(Schema):
    """Let a gated worker run its script in run `run`, with `env` added. The worker is told `env` only.

    `each`: what each of a node's processes gets besides, in their order; left out where it is one.
    """

    type: Literal["go"]
    trainer: int
    generation: int
    run: int
    env: dict[str, str]
    each: list[dict[str, str]] = Field(default_factory=list)


class Regroup(Schema):
    """A membership, by nodes in the order of ranks. Goes on to the worker; who leaves has `grace_s`.

    `workers`: how many each member runs, whose ranks follow each other; left out where each runs one.
    """

    type: Literal["regroup"]
    trainer: int
    generation: int
    members: list[str]
    leaving: list[str]
    grace_s: float
    workers: list[int] = Field(default_factory=list)


class RelayedKv(Schema):
    """`Kv` of another member. Goes on to the worker."""

    type: Literal["kv"]
    trainer: int
    generation: int
    key: Any
    value: Any


class RelayedBusy(Schema):
    """`Busy` of the member on `node`. Goes on to the worker."""

    type: Literal["busy"]
    trainer: int
    node: str
    seconds: float


class WrittenSnapshot(Schema):
    """Tells a worker that the agent is done with a snapshot, whose memory is the worker's again. `saved`:
    whether it is whole on the disk; if not, `error` says why, or a later one took its place."""

    type: Literal["written"]
    slot: int
    step: int
    saved: bool
    error: str


class Stop(Schema):
    """End a trainer's worker, and kill it after `grace_s`. It gets "stop"; a gated one gets SIGTERM.

    `leader_first`: of a node's gated workers the first alone gets it, the others when that has ended.
    """

    type: Literal["stop"]
    trainer: int
    grace_s: float
    leader_first: bool = False


class Kill(Schema):
    """SIGKILL a trainer's worker; `reason` comes back in `Exited`."""

    type: Literal["kill"]
    trainer: int
    reason: str


class Heard(Schema):
    """The daemon has heard the end of this worker."""

    type: Literal["heard"]
    trainer: int
    started: int
    run: int


class Exit(Schema):
    """The agent must end, and all workers of the node with it."""

    type: Literal["exit"]
