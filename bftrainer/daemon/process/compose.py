"""From settings to a daemon: its scheduler, and where agents find it."""

from __future__ import annotations

import socket
from collections.abc import Callable
from importlib import import_module

from bftrainer.api.transport.listen import bind
from bftrainer.daemon.clock import WallClock
from bftrainer.daemon.daemon import Daemon
from bftrainer.errors import BftrainerError
from bftrainer.messages.files.settings import NEEDS_HARVEST, WHOLE_NODES
from bftrainer.ports import Store
from bftrainer.schedulers.shared.context import Context, Make, PlayedLog
from bftrainer.settings.schedulers import SCHEDULERS
from bftrainer.settings.values import Settings


def compose(settings: Settings, store: Store, log: PlayedLog, say: Callable[[str], None]) -> Daemon:
    """The daemon with the scheduler that the settings name. `say` tells the operator something in a sentence.

    Raises:
        BftrainerError: scheduler or address cannot be had so.
    """
    kind, clock = SCHEDULERS[settings.scheduler], WallClock()
    if settings.share == "gpu" and not kind.shares_gpus:
        raise BftrainerError(WHOLE_NODES.say(scheduler=settings.scheduler))
    if settings.share == "gpu" and settings.scheduler == "slurm" and settings.harvest != "gpus":
        raise BftrainerError(NEEDS_HARVEST.say())
    bound, agents_at = (
        (None, str(settings.agents_socket)) if kind.on_this_machine else bind_for_agents(settings, store)
    )
    make: Make = import_module(kind.module).make
    context = Context(settings=settings, store=store, clock=clock, agents_at=agents_at, log=log, say=say)
    return Daemon(settings, make(context), store, clock, bound)


def place_for_agents(settings: Settings) -> tuple[str, str]:
    """The host and port at which agents are told to find the daemon, as far as the settings say: PORT stands
    for any free one."""
    named, _, port = settings.listen.rpartition(":")
    host = settings.address if named in {"", "0.0.0.0", "[::]"} else named  # noqa: S104  no place to call
    return host, port if int(port or 0) else "PORT"


def bind_for_agents(settings: Settings, store: Store) -> tuple[socket.socket, str]:
    """The socket where agents connect, and its host:port. After a restart it is the same, as agents come back
    there. A loopback address is named as one, whatever the settings call it.

    Raises:
        BftrainerError: `listen` or `address` is not this machine's, or the port of `listen` is taken.
    """
    if settings.listen:
        bound = bind(settings.listen)
    else:
        try:
            bound = bind(f"{settings.address}:{store.get('port') or 0}")
        except BftrainerError:  # another process has the port now: agents out there end by themselves
            bound = bind(f"{settings.address}:0")
    at, port = bound.getsockname()[:2]
    if str(port) != store.get("port"):  # a start needs no disk with room on it
        store.put("port", str(port))
    return bound, f"{at if at.startswith('127.') else place_for_agents(settings)[0]}:{port}"
