"""What the HTTP server asks of the daemon."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from bftrainer.api.callers import Caller

Json = Mapping[str, Any]
"""A JSON object."""


class Service(Protocol):
    """The daemon's answers. Each caller learns only of trainers that it may see; admins see all.

    A request that the caller can mend raises a `BftrainerError`: an order for admins from another caller
    `NotAllowedError`, a trainer that the caller cannot see or that does not exist `UnknownTrainerError`.
    """

    async def submit(self, caller: Caller, text: str, name: str, base: str) -> Json:
        """Submit a trainer; return its `id`.

        `text` is the YAML, `name` its file (for messages), `base` the folder that relative paths start from.
        Raises `BftrainerError` if anything in the spec is wrong, and `NameTakenError` for a name in use.
        """
        ...

    def trainers(self, caller: Caller, ended: int, skip: int) -> tuple[Sequence[Json], int]:
        """List all trainers that have not ended, and `ended` of the others after the last `skip`.

        Also returns how many that ended are left out.
        """
        ...

    def show(self, caller: Caller, trainer: str) -> Json:
        """Return all about a trainer, by number or name; of several with one name the latest."""
        ...

    async def cancel(self, caller: Caller, trainer: str) -> Json:
        """Order the end of a trainer and return its row. Idempotent."""
        ...

    def pool(self, caller: Caller) -> Json:
        """Return `size`, the number of nodes in the pool, and `nodes`, a row for each node of the machine."""
        ...

    def rows(self, caller: Caller, what: str, limit: int, trainer: str | None) -> Sequence[Json]:
        """Return the last `limit` "events", "pauses" or "reports", oldest first; of one trainer if given.

        Called in a thread of its own.
        """
        ...

    def status(self, caller: Caller) -> Json:
        """Return the daemon's state and problems, totals, the last plan; the settings only to admins."""
        ...

    def administer(self, caller: Caller, order: str) -> Json:
        """Carry out "pause", "drain" or "resume" for an admin, and return the status."""
        ...

    def metrics(self, caller: Caller) -> bytes:
        """Return the metrics in the text format of Prometheus."""
        ...

    def liveness_problems(self) -> list[str]:
        """Return why the daemon's process must be restarted; empty if it is alive."""
        ...

    def readiness_problems(self) -> list[str]:
        """Return why the daemon cannot do its work now; empty if it can."""
        ...

    def readiness_warnings(self) -> list[str]:
        """Return what is wrong without keeping the daemon from its work."""
        ...
