"""Settings that are read again on SIGHUP, in a thread: their file may lie where nothing answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from bftrainer.allocate import check_solver
from bftrainer.daemon.daemon import Daemon
from bftrainer.errors import BftrainerError
from bftrainer.messages.commands.running import RELOAD
from bftrainer.settings.values import Settings
from bftrainer.telemetry.log import note
from bftrainer.telemetry.troubles import Trouble
from bftrainer.threads import in_thread

log = logging.getLogger(__name__)

PATIENCE_S = 20.0
"""Seconds that a reload may take; a later result is dropped."""


class Reloading:
    """Reads settings whenever it is asked to, one reload at a time; `read` returns them as they are now.

    `over` is called at the end of each reload, whether or not anything has changed.
    """

    def __init__(
        self,
        daemon: Daemon,
        read: Callable[[], Settings],
        over: Callable[[], None],
        *,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._daemon, self._read, self._over, self._patience_s = daemon, read, over, patience_s
        self._asked = asyncio.Event()
        self._reading: asyncio.Future[tuple[Settings, str | None]] | None = None

    def ask(self) -> None:
        """Have the settings read; one that comes while they are read has them read once more."""
        self._asked.set()

    async def run(self) -> None:
        """Reload as often as it is asked for."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            try:
                await self._reload()
            except BftrainerError as error:
                note(log, "reload_failed", logging.ERROR, reason=error, kept="the old settings")
            self._over()

    async def _reload(self) -> None:
        """Take over what may change; say what may not. A file that cannot be read changes nothing."""
        daemon = self._daemon
        before = daemon.settings.current
        asked, wrong = await self._read_in_thread(before)
        if wrong is not None:
            note_solver(daemon, wrong)
        refused = daemon.reload(asked)
        after = {name: getattr(daemon.settings.current, name) for name in Settings.model_fields}
        changed = {name: value for name, value in after.items() if value != getattr(before, name)}
        note(log, "reloaded", **changed)
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

    async def _read_in_thread(self, before: Settings) -> tuple[Settings, str | None]:
        """The settings, and what `try_solver` says where another allocator or solver is asked for.

        Raises:
            BftrainerError: they cannot be read, or not in time.
        """
        if self._reading is not None and not self._reading.done():
            raise BftrainerError(RELOAD.say(why="an earlier reload still reads the settings"))
        try:
            self._reading = in_thread("settings", lambda: _read(self._read, before))
        except RuntimeError as error:
            raise BftrainerError(RELOAD.say(why=error)) from error
        done, _ = await asyncio.wait({self._reading}, timeout=self._patience_s)
        if done:
            return self._reading.result()
        self._reading.add_done_callback(lambda late: late.exception())  # nobody asks for it any more
        raise BftrainerError(RELOAD.say(why=f"no settings were read within {self._patience_s:g} s"))


def _read(read: Callable[[], Settings], before: Settings) -> tuple[Settings, str | None]:
    asked = read()
    same = (asked.allocator, asked.solver) == (before.allocator, before.solver)
    return asked, None if same else try_solver(asked)


def note_solver(daemon: Daemon, wrong: str) -> None:
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
