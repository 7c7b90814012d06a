"""The daemon as a service: signals, what systemd is told, and settings that are read again on SIGHUP."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
from collections.abc import Callable

from bftrainer.api.transport.sockets import interrupt_waits
from bftrainer.daemon.daemon import Daemon
from bftrainer.daemon.process.reloading import Reloading, note_solver, try_solver
from bftrainer.daemon.systemd import Systemd, report
from bftrainer.settings.values import Settings
from bftrainer.spec.located_yaml import FAST
from bftrainer.telemetry.log import note

log = logging.getLogger(__name__)


async def serve(daemon: Daemon, read: Callable[[], Settings], systemd: Systemd) -> None:
    """Run until SIGTERM or SIGINT; `read` gives the settings as file and environment have them now.

    Its log says `listening` once users can ask, and `ready` after the first poll, if nothing keeps it from
    its work. Warns if the solver does not work that `allocator: auto` might ask.

    Raises:
        BftrainerError: see `Daemon.run`.
    """
    ready = False
    background = set[asyncio.Task[None]]()

    def listens() -> None:
        nonlocal ready
        ready, settings = True, daemon.settings.current
        note(log, "listening", socket=settings.socket)
        if not FAST:
            note(log, "slow_yaml", logging.WARNING, why="PyYAML here was built without libyaml")
        systemd.ready()
        if settings.allocator != "milp":  # the command line has tried it, and would have ended
            background.add(asyncio.create_task(_try_solver_of(daemon), name="solver"))

    def works() -> None:
        if not daemon.telemetry.troubles.texts(details=False, blocking=True):
            note(log, "ready")

    def stop() -> None:
        note(log, "stopping")
        systemd.stopping()
        daemon.stop()

    def is_reloaded() -> None:
        if ready:  # systemd takes it for the end of the start, too
            systemd.ready()

    reloading = Reloading(daemon, read, is_reloaded)

    def reload() -> None:
        systemd.reloading()
        reloading.ask()

    interrupt_waits()
    loop = asyncio.get_running_loop()
    for sign, handler in ((signal.SIGTERM, stop), (signal.SIGINT, stop), (signal.SIGHUP, reload)):
        loop.add_signal_handler(sign, handler)
    background.add(asyncio.create_task(report(systemd, daemon.runner.pulse, lambda: summary(daemon))))
    background.add(asyncio.create_task(reloading.run(), name="settings"))
    try:
        await daemon.run(listens, works)
    finally:
        for task in background:
            task.cancel()


async def _try_solver_of(daemon: Daemon) -> None:
    """Try the solver without keeping the daemon waiting."""
    note_solver(daemon, await asyncio.to_thread(try_solver, daemon.settings.current))
    gc.freeze()  # the solver stays: to go through all of it again and again would stop everything


def summary(daemon: Daemon) -> str:
    """The line that `systemctl status` shows. Everybody can read it, so it names no users."""
    state = daemon.runner.state
    running = [t for t in state.active.values() if t.members]
    said = [
        f"{len(state.pool)} nodes, {len(running)} of {len(state.active) + len(state.waiting)} trainers run"
    ]
    said += [f"degraded: {text}" for text in daemon.telemetry.troubles.texts(details=False)]
    return "; ".join(said)
