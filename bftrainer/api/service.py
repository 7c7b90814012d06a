"""The interface between the HTTP server and the daemon."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from bftrainer.api.answers import Answer, Answers
from bftrainer.api.callers import Caller
from bftrainer.api.stream import Feed

Json = Mapping[str, Any]
"""A JSON object."""


class StudyService(Protocol):
    """The daemon's answers on studies. Each caller learns only of those that it may see; admins see all."""

    async def submit(self, caller: Caller, text: str, name: str, base: str) -> Json:
        """Submit a study; return its row. `text` is the YAML, `name` its file, `base` the file's folder."""
        ...

    async def listed(self, caller: Caller, ended: int) -> Answer:
        """List the studies that have not ended, and `ended` of those that have."""
        ...

    async def show(self, caller: Caller, name: str, points: int, most: int | None, after: int) -> Answer:
        """Return all about a study, by number or name; each trial with the last `points` of its course.

        Of more than `most` trials these are those that run, then the best. The others come by number, after
        the one with the number `after`; the header NEXT leads to those that have no room."""
        ...

    async def order(self, caller: Caller, name: str, order: str) -> Answer:
        """Carry out "pause", "resume" or "cancel" and return the study's row. Idempotent."""
        ...

    async def add(self, caller: Caller, name: str, trials: int, points: Sequence[object]) -> Answer:
        """Add trials to a study, and points that its next ones try; return the study's row."""
        ...

    async def prioritise(self, caller: Caller, name: str, to: float) -> Answer:
        """Give the trainers of a study another priority, and return the study's row."""
        ...


class Service(Protocol):
    """The daemon's answers. Each caller learns only of trainers that it may see; admins see all.

    A request that the caller can mend raises a `BftrainerError`: an order for admins from another caller
    `NotAllowedError`, a trainer that the caller cannot see or that does not exist `UnknownTrainerError`.
    What asks the store, or makes a large answer, may raise `BusyError` and `LateError`.
    """

    @property
    def answers(self) -> Answers:
        """Sends large answers."""
        ...

    @property
    def feed(self) -> Feed:
        """The feed of changes."""
        ...

    @property
    def studies(self) -> StudyService:
        """The answers on studies."""
        ...

    async def submit(self, caller: Caller, text: str, name: str, base: str, resume: str | None) -> Json:
        """Submit a trainer; return its `id`.

        `text` is the YAML, `name` its file (for messages), `base` the folder that relative paths start from.
        With `resume` it goes on from the checkpoints of the caller's trainer of this name or number.
        Raises `BftrainerError` if anything in the spec is wrong, and `NameTakenError` for a name in use.
        """
        ...

    async def trainers(self, caller: Caller, ended: int, skip: int, after: int) -> Answer:
        """List the trainers that hold nodes, some that wait, and `ended` of the others after the last `skip`.

        With `after`, only those that wait and arrived after the one with this id. The answer's headers tell
        how many are left out (see `api.listing`).
        """
        ...

    async def show(self, caller: Caller, trainer: str) -> Json:
        """Return all about a trainer, by number or name; of several with one name the latest."""
        ...

    async def cancel(self, caller: Caller, trainer: str) -> Json:
        """Order the end of a trainer and return its row. Idempotent."""
        ...

    async def prioritise(self, caller: Caller, trainer: str, to: float) -> Json:
        """Give a trainer another priority, and return its row."""
        ...

    async def pool(self, caller: Caller) -> Answer:
        """Return `size`, the number of nodes in the pool, and `nodes`, a row for each node of the machine."""
        ...

    async def rows(
        self, caller: Caller, what: str, limit: int, trainer: str | None, before: int | None
    ) -> Answer:
        """Return the last `limit` "events", "pauses" or "reports", oldest first; of one trainer if given.

        With `before`, only those before the one with this id.
        """
        ...

    def status(self, caller: Caller) -> Json:
        """Return the daemon's state and problems, totals, the last plan; the settings only to admins."""
        ...

    def administer(self, caller: Caller, order: str) -> Json:
        """Carry out "pause", "drain" or "resume" for an admin, and return the status."""
        ...

    async def impact(self, caller: Caller, days: float) -> Json:
        """Return what main jobs have waited in the last `days`, for an admin."""
        ...

    async def metrics(self, caller: Caller) -> Answer:
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
