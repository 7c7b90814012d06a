"""Listens to users, to agents and to Prometheus, each with connections of their own."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from aiohttp import web

from bftrainer.api.callers import NOBODY, Callers
from bftrainer.api.munge import Munge
from bftrainer.api.routes import agents_application, metrics_application, users_application
from bftrainer.api.service import Service
from bftrainer.api.transport.accept import Listener
from bftrainer.api.transport.admission import TELL_S, Admission, HttpLimits
from bftrainer.api.transport.listen import bind, bind_loopback, bind_unix
from bftrainer.api.transport.sockets import PORTION, UNPROVEN_PORTION
from bftrainer.daemon.descriptors import METRICS_CONNECTIONS, DescriptorShare, of_settings
from bftrainer.errors import BftrainerError
from bftrainer.messages.commands.running import LISTENS
from bftrainer.settings.live import LiveSettings
from bftrainer.settings.values import Settings
from bftrainer.state_dir.path_safety import socket_danger
from bftrainer.telemetry.log import note
from bftrainer.telemetry.telemetry import Telemetry
from bftrainer.wire.hub import Hub

log = logging.getLogger(__name__)

AGENTS_RATE = 4
"""Factor on the rate of users: after a restart of the daemon all agents come back, perhaps many from one
address."""
CONNECTIONS_OF_A_USER = 32
"""Connections of one user at once, with the requests that are in work: a command has one."""
REQUEST_S = 10.0
"""Time for a client to send a request's head, then its body, and to take the answer, in seconds."""
REQUEST_KB = 64
"""Largest body of a request, unless `max_spec_kb` needs more: a spec takes up to twice its size in one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listeners:
    """Opens what the settings say. `tcp` is the bound socket of agents on other machines; without it, agents
    of this machine connect to `agents_socket`."""

    settings: LiveSettings
    service: Service
    hub: Hub
    telemetry: Telemetry
    tcp: socket.socket | None
    _places: list[tuple[Admission, Callable[[Settings], HttpLimits]]] = field(default_factory=list)

    def reload(self) -> None:
        """Take over what one user may use, and in which time. How many connections there may be in all stays:
        file descriptors are shared out at the start."""
        for places, bounds in self._places:
            places.change(bounds(self.settings.current))

    async def tell(self) -> None:
        """Tell of bounds that clients have hit and nobody was told of yet, for ever."""
        while True:
            for places, _ in self._places:
                places.tell_rest()
            await asyncio.sleep(TELL_S)

    async def open(self, stack: AsyncExitStack) -> None:
        """Listen until `stack` is unwound: to users first, to agents last.

        Raises:
            BftrainerError: A socket cannot be had.
        """
        settings = self.settings.current
        room = of_settings(settings.max_connections, settings.max_agents)
        if room.reason:
            note(log, "few_descriptors", reason=room.reason)
        self.telemetry.condition("descriptors", room.reason if room.is_short else "")
        await self._to_agents(stack, settings, room)
        await self._to_users(stack, settings, room)
        await self._to_prometheus(stack, settings)

    async def _to_users(self, stack: AsyncExitStack, settings: Settings, room: DescriptorShare) -> None:
        places = self._admission(lambda now: _bounds(now, room.users))
        callers = self._callers()
        users = partial(
            users_application,
            self.service,
            callers,
            max_request=1000 * max(REQUEST_KB, 2 * settings.max_spec_kb),
        )
        if settings.mode == "site" and (found := socket_danger(settings.socket, os.geteuid())):
            raise BftrainerError(LISTENS.ends(f"socket {settings.socket}: {found.said}; {found.remedy}"))
        await _serve(
            stack,
            users(),
            bind_unix(settings.socket, for_all=settings.mode == "site"),
            places,
            settings.socket,
            named=callers.named,
        )
        if settings.listen_users:
            at = bind(settings.listen_users, "listen_users")
            await _serve(stack, users(), at, places, named=callers.named)

    async def _to_agents(self, stack: AsyncExitStack, settings: Settings, room: DescriptorShare) -> None:
        app = agents_application(self.hub)
        if self.tcp is not None:
            places = self._admission(
                lambda now: replace(_bounds(now, room.agents, AGENTS_RATE), total_is="max_agents")
            )
            await _serve(stack, app, self.tcp, places, portion=UNPROVEN_PORTION)
        else:  # nobody but our own user can connect
            places = self._admission(
                lambda now: HttpLimits(room.agents, room.agents, None, REQUEST_S, "max_agents")
            )
            at = settings.agents_socket
            await _serve(stack, app, bind_unix(at, for_all=False), places, at, UNPROVEN_PORTION)

    async def _to_prometheus(self, stack: AsyncExitStack, settings: Settings) -> None:
        """Every user of this machine can read a port of loopback: names show only where settings allow it."""
        if settings.metrics_port is None:
            return
        callers = self._callers()
        reader = callers.known(os.geteuid()) if settings.metrics_trainers else NOBODY
        total, each = METRICS_CONNECTIONS, METRICS_CONNECTIONS // 2
        places = self._admission(lambda now: HttpLimits(total, each, now.max_requests_per_second, REQUEST_S))
        app, at = metrics_application(self.service, reader), bind_loopback(settings.metrics_port)
        await _serve(stack, app, at, places, named=callers.named)

    def _admission(self, bounds: Callable[[Settings], HttpLimits]) -> Admission:
        places = Admission(
            bounds(self.settings.current),
            told=lambda bound, by, times: self.telemetry.bounded(bound, by, times=times),
            failed=partial(self.telemetry.happened, "connections"),
        )
        self._places.append((places, bounds))
        return places

    def _callers(self) -> Callers:
        settings = self.settings.current
        munge = Munge(settings.munge_socket) if settings.munge else None
        return Callers(
            site=settings.mode == "site",
            admins=lambda: self.settings.current.admins,
            munge=munge,
        )


def _bounds(settings: Settings, total: int, rate: float = 1.0) -> HttpLimits:
    """Return the bounds of a listener with `total` places, at `rate` times the rate of one user."""
    each = min(CONNECTIONS_OF_A_USER, total)
    return HttpLimits(total, each, rate * settings.max_requests_per_second, REQUEST_S)


async def _serve(
    stack: AsyncExitStack,
    app: web.Application,
    bound: socket.socket,
    places: Admission,
    path: Path | None = None,
    portion: int = PORTION,
    named: Callable[[int], bool] = lambda uid: True,
) -> None:
    """Serve an application until the stack is unwound; a Unix socket's `path` goes with it. `named` is of
    which users a name is known."""
    if path is not None:
        stack.callback(path.unlink, missing_ok=True)
    listener = Listener(app, bound, places, portion, named)
    stack.push_async_callback(listener.cleanup)
    await listener.start()
