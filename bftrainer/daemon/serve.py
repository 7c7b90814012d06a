"""The daemon as a service: signals, what systemd is told, and settings that are read again on SIGHUP."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable

from bftrainer.allocate import check_solver
from bftrainer.daemon.daemon import Daemon
from bftrainer.daemon.systemd import Systemd, report
from bftrainer.errors import BftrainerError
from bftrainer.settings.values import Settings
from bftrainer.spec.located_yaml import FAST
from bftrainer.telemetry.log import note, tell_left_out
from bftrainer.telemetry.troubles import Trouble

log = logging.getLogger(__name__)


async def serve(daemon: Daemon, read: Callable[[], Settings], systemd: Systemd) -> None:
    """Run until SIGTERM or SIGINT; `read` gives the settings as file and environment have them now.

    Once it is ready, warns if the solver does not work that `allocator: auto` might ask.

    Raises:
        BftrainerError: see `Daemon.run`.
    """
    ready = False
    background = set[asyncio.Task[None]]()

    def is_ready() -> None:
        nonlocal ready
        ready, own = True, daemon.settings.current
        note(log, "ready", socket=own.socket)
        if not FAST:
            note(log, "slow_yaml", logging.WARNING, why="PyYAML here was built without libyaml")
        systemd.ready()
        if own.allocator != "milp":  # the command line has tried it, and would have ended
            background.add(asyncio.create_task(_try_solver_of(daemon), name="solver"))

    def stop() -> None:
        note(log, "stopping")
        systemd.stopping()
        daemon.stop()

    def reload() -> None:
        systemd.reloading()
        _reload(daemon, read)
        if ready:  # systemd takes it for the end of the start, too
            systemd.ready()

    loop = asyncio.get_running_loop()
    for sign, handler in ((signal.SIGTERM, stop), (signal.SIGINT, stop), (signal.SIGHUP, reload)):
        loop.add_signal_handler(sign, handler)
    background.add(asyncio.create_task(report(systemd, daemon.runner.pulse, lambda: _told(daemon))))
    try:
        await daemon.run(is_ready)
    finally:
        for task in background:
            task.cancel()


def _reload(daemon: Daemon, read: Callable[[], Settings]) -> None:
    """Take over what may change; say what may not. A file that cannot be read changes nothing."""
    before = daemon.settings.current
    try:
        asked = read()
        if (asked.allocator, asked.solver) != (before.allocator, before.solver):
            _note_solver(daemon, try_solver(asked))
        refused = daemon.reload(asked)
    except BftrainerError as error:
        note(log, "reload_failed", logging.ERROR, reason=error, kept="the old settings")
        return
    after = {name: getattr(daemon.settings.current, name) for name in Settings.model_fields}
    note(log, "reloaded", **{name: value for name, value in after.items() if value != getattr(before, name)})
    for name, (kept, wanted) in refused.items():
        note(
            log,
            "setting_refused",
            logging.WARNING,
            name=name,
            kept=kept,
            wanted=wanted,
            why="needs a restart",
        )


async def _try_solver_of(daemon: Daemon) -> None:
    """Try the solver without keeping the daemon waiting."""
    _note_solver(daemon, await asyncio.to_thread(try_solver, daemon.settings.current))


def _note_solver(daemon: Daemon, wrong: str) -> None:
    """Show in the status, until settings are read again, that `auto` has to do without its solver."""
    daemon.telemetry.troubles.set(
        "solver", Trouble(f"auto decides without the MILP: {wrong}") if wrong else None
    )


def try_solver(settings: Settings) -> str:
    """Have the allocator's solver solve something; warn if `auto` has to do without it.

    Returns why it does not work; empty if it does, or if the allocator asks none.

    Raises:
        SolverError: the allocator is `milp`, and its solver does not work.
    """
    wrong = check_solver(settings.engine)
    if wrong:
        note(log, "solver_failed", logging.WARNING, reason=wrong, allocator=settings.allocator)
    return wrong


def _told(daemon: Daemon) -> str:
    """What `systemctl status` shows; the log tells at the same time what it has left out."""
    tell_left_out()
    return summary(daemon)


def summary(daemon: Daemon) -> str:
    """The line that `systemctl status` shows. Everybody can read it, so it names no users."""
    state = daemon.runner.state
    running = [t for t in state.active.values() if t.members]
    said = [
        f"{len(state.pool)} nodes, {len(running)} of {len(state.active) + len(state.waiting)} trainers run"
    ]
    said += [f"degraded: {text}" for text in daemon.telemetry.troubles.texts(details=False)]
    return "; ".join(said)
