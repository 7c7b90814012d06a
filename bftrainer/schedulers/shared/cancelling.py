"""How pilots are cancelled: by the numbers of their jobs, each as its user, all at once."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass

from bftrainer.errors import KeptError, SchedulerError
from bftrainer.model.machine import Pilot
from bftrainer.schedulers.shared.hedge import HELD_UP


@dataclass(frozen=True, slots=True)
class Cancelling:
    """`jobs` tells the numbers of pilots as last seen, and `look` has the batch system list them anew. `end`
    ends jobs of a user, and returns why that failed, "" if it did not."""

    jobs: Callable[[], Mapping[Pilot, Collection[str]]]
    look: Callable[[], Awaitable[object]]
    end: Callable[[str, Collection[str]], Awaitable[str]]

    async def cancel(self, pilots: Collection[Pilot]) -> None:
        """Cancel pilots.

        Raises:
            SchedulerError: some could not be cancelled. `KeptError` if a user may have kept some.
        """
        known = [pilot for pilot in pilots if self._numbers(pilot)]
        others = [pilot for pilot in pilots if not self._numbers(pilot)]
        # all at once: none waits for a question about another, or for a user as whom nothing can be run
        failed = await asyncio.gather(self._known(known), self._unknown(others))
        if reasons := list(dict.fromkeys(reason for reasons in failed for reason in reasons if reason)):
            held_up = any(words in said for said in reasons for words in HELD_UP)
            raise (KeptError if held_up else SchedulerError)("; ".join(reasons))

    def _numbers(self, pilot: Pilot) -> set[str]:
        return set(self.jobs().get(pilot, ())) | ({pilot.job} - {""})

    async def _known(self, pilots: Collection[Pilot]) -> Collection[str]:
        """Cancel jobs by their numbers; returns why that failed where it did."""
        numbers: dict[str, set[str]] = defaultdict(set)
        for pilot in pilots:
            numbers[pilot.user] |= self._numbers(pilot)
        return await asyncio.gather(*(self.end(user, jobs) for user, jobs in numbers.items() if jobs))

    async def _unknown(self, pilots: Collection[Pilot]) -> Collection[str]:
        """Cancel pilots whose submissions were never confirmed: their names tell their numbers."""
        if not pilots:
            return ()
        try:
            await self.look()
        except SchedulerError as error:
            return (str(error),)
        return await self._known(pilots)
