"""One look at a daemon, as a demonstration and `bftrainer watch` show it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from bftrainer.api.client import Client

FIRST, AGAIN = 1000, 100
"""Events that are asked for at the first look, and then; the former is kept."""
PAUSES, ENDED = 60, 100
"""Latest pauses and ended trainers that are looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A sentence of the demonstration: of the act with this number (0: before the first), `at_s` after the
    first look."""

    at_s: float
    act: int
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class DaemonView:
    """The daemon's answers to `pool`, `trainers`, `pauses` and `events`, `elapsed_s` after the first look,
    at the time `now` (Unix seconds). `told` is all that was said so far, and `acts_left` are the
    titles of the acts that are not over."""

    elapsed_s: float
    pool: dict[str, Any]
    trainers: list[dict[str, Any]]
    pauses: list[dict[str, Any]]
    events: tuple[dict[str, Any], ...] = ()
    now: float = 0.0
    told: tuple[Told, ...] = ()
    acts_left: tuple[str, ...] = ()


class Looker:
    """Looks at a daemon again and again; asks only for the events that are new."""

    def __init__(self, client: Client) -> None:
        self._client, self._begin = client, 0.0
        self._events: dict[int, dict[str, Any]] = {}

    def look(self) -> DaemonView:
        """Ask for the present state; time counts from the first look. Raises as `Client.call`."""
        now = time.time()
        self._begin = self._begin or now
        self._ask_for_events()
        return DaemonView(
            elapsed_s=now - self._begin,
            pool=self._client.call("GET", "pool"),
            trainers=self._client.trainers(ENDED).trainers,
            pauses=self._client.call("GET", "pauses", limit=PAUSES),
            events=tuple(self._events.values()),
            now=now,
        )

    def _ask_for_events(self) -> None:
        last = max(self._events, default=0)
        found = self._client.rows("events", AGAIN if last else FIRST)
        if last and found and found[0]["id"] > last + 1:  # more have come than were asked for
            found = self._client.rows("events", FIRST)
        self._events |= {e["id"]: e for e in found}
        self._events = dict(sorted(self._events.items())[-FIRST:])
