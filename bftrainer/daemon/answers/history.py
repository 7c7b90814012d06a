"""Reads events, pauses and reports from the store, in pages of a bounded size."""

from __future__ import annotations

from dataclasses import dataclass

from bftrainer.api.answers import ANSWER_BYTES, Answer
from bftrainer.api.callers import Caller
from bftrainer.api.listing import NEXT, dumps, joined
from bftrainer.daemon.answers.trainers import Trainers, owner_of
from bftrainer.daemon.lanes import Lanes
from bftrainer.ports import Store

FIRST, MOST = 20, 500
"""Rows that are read at once: few first, as one row of a large machine may have a megabyte."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredHistory:
    """Reads the store's rows a few at a time, until an answer is full."""

    store: Store
    trainers: Trainers
    lanes: Lanes

    async def rows(
        self, caller: Caller, what: str, limit: int, trainer: str | None, before: int | None
    ) -> Answer:
        """The last `limit` rows of "events", "pauses" or "reports" that the caller may see, oldest first, of
        those before the one with the id `before`; with `trainer` those of one trainer.

        Where the answer is full, its header NEXT has the `before` of the next one.

        Raises:
            UnknownTrainerError: there is no such trainer that the caller may see.
            BusyError, LateError: see `Lane.run`.
        """

        def make() -> Answer:
            id_ = None if trainer is None else self.trainers.find(caller, trainer).id
            return self._answer(what, limit, id_, owner_of(caller), before)

        return await self.lanes.rows.run(caller.user, make)

    def _answer(
        self, what: str, limit: int, trainer: int | None, user: str | None, before: int | None
    ) -> Answer:
        most, size, step = ANSWER_BYTES, 0, FIRST
        texts = list[bytes]()
        while len(texts) < limit:
            asked = min(step, limit - len(texts))
            some = self.store.rows(what, asked, trainer, user, before)
            for row in reversed(some):
                text = dumps(row).encode()
                size += len(text) + 1
                if texts and size > most:
                    return Answer(joined(reversed(texts)), {NEXT: str(before)})
                texts.append(text)
                before = row["id"]
            if len(some) < asked:
                break
            step = max(1, min(MOST, (most - size) * len(texts) // size))
        return Answer(joined(reversed(texts)))
