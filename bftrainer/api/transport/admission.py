"""Bounds the connections of a listener and of each user: lets one in, or closes another for it.

Nothing here touches a socket. A place is one connection together with the request that came over it: it is
free again when the connection is gone *and* the request's work is done, so that clients that go away leave
no work behind that nobody counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from bftrainer.errors import BftrainerError
from bftrainer.messages.commands.reaching import BUSY
from bftrainer.wire.rates import Bucket

Owner = tuple[str, int | str]
"""To whom connections are counted: ("user", uid) where that is known, else ("address", IP address) or
("unnamed", numbers of users)."""

RETRY_S = 1
"""When a client that was refused may try again: seconds, of which HTTP knows only whole ones."""
BURST_S = 4.0
"""An owner that was quiet may send at once what it could have sent in this time (s)."""
TELL_S = 1.0
"""Seconds between two reports that an owner hits a bound."""
TOLD_AT_ONCE = 200
"""Owners that are reported in one turn of the event loop, at most."""
MAX_QUIET = 10_000
"""Owners that are remembered before those that have been quiet are forgotten."""


class BusyError(BftrainerError):
    """The daemon does not take the request now. Nothing was done: the client may try again in `RETRY_S`."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(BUSY.ends(message))
        self.status = status


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Bounds on a listener's clients: connections in all (`total`) and of one owner (`each`), requests per
    second of one owner (None: no limit), and the time in which a client sends its request. `total_is` names
    the setting that gives `total`."""

    total: int
    each: int
    per_second: float | None
    timeout_s: float
    total_is: str = "max_connections"


@dataclass(slots=True, eq=False)
class ConnectionPlace:
    """One connection, counted to an owner until it is gone and its work is done."""

    owner: Owner
    register: Admission
    evict: Callable[[BusyError], None] = lambda _: None
    """Closes the connection, because another one needs the place, with the error for its client."""
    idle: bool = True
    """True if nobody works on it: the client has not sent its request, or not taken its answer."""
    connected: bool = True
    evicted: BusyError | None = None
    """The error for its client, once the connection had to make room."""

    def belongs_to(self, uid: int) -> None:
        """Count the place to a user from now on, and its request to the user's rate.

        Raises:
            BusyError: the user has too many already, or sends too many requests.
        """
        owner: Owner = ("user", uid)
        if owner != self.owner:
            self.register.move(self, owner)

    def proven(self) -> None:
        """Authenticated agent: exempt from quotas and eviction."""
        self.idle = False
        self.register.exempt(self)

    def works(self) -> None:
        """The request is there, and is worked on from now on."""
        self.idle = False

    def rests(self) -> None:
        """The work is done; the client has not taken the answer."""
        self.idle = True
        self.register.settle(self)

    def lost(self) -> None:
        """The connection is gone."""
        self.connected = False
        self.register.settle(self)


@dataclass(slots=True)
class _Hits:
    """Counts an owner's hits of a bound since the last report."""

    told_at: float = float("-inf")
    untold: int = 0


@dataclass(slots=True)
class Admission:
    """Gives places to connections.

    `told` is called with the setting whose bound is hit, the owner that hits it, and how often since it was
    last told, which is a second ago or more; `failed` with the reason
    when a connection is refused that its owner could have had. `now` is a monotonic clock, in seconds.
    """

    bounds: HttpLimits
    told: Callable[[str, str, int], None]
    failed: Callable[[str], None]
    now: Callable[[], float] = time.monotonic
    _places: dict[Owner, dict[ConnectionPlace, None]] = field(default_factory=dict)
    _exempt: set[ConnectionPlace] = field(default_factory=set)
    _buckets: dict[Owner, Bucket] = field(default_factory=dict)
    _hits: dict[tuple[str, Owner], _Hits] = field(default_factory=dict)
    _pruned_at: float = 0.0
    taken: int = 0
    """Number of places that are taken."""

    def change(self, bounds: HttpLimits) -> None:
        """Go by other bounds from now on. What has been let in stays."""
        if bounds.per_second != self.bounds.per_second:
            self._buckets.clear()
        self.bounds = bounds

    def enter(self, owner: Owner) -> ConnectionPlace:
        """A place for a new connection. If there is none, the longest idle connection makes room: of the same
        owner if that has its share already, else of the owner with the most.

        Raises:
            BusyError: no place can be had, or the owner sends too many requests. Close the connection.
        """
        self._charge(owner)
        self._room_for(owner)
        most = f"{self.bounds.total} connections at once ({self.bounds.total_is})"
        if self.taken >= self.bounds.total and not self.evict_idle(f"the daemon serves {most}"):
            if self._tell(self.bounds.total_is, owner):
                self.failed("all connections are taken: new ones are refused")
            raise BusyError(f"the daemon serves {most}; try again in a moment", 503)
        place = ConnectionPlace(owner, self)
        self._add(place)
        return place

    def move(self, place: ConnectionPlace, owner: Owner) -> None:
        """Count a place to another owner. Raises `BusyError` as `enter` does."""
        self._charge(owner)
        self._room_for(owner)
        self._remove(place)
        place.owner = owner
        self._add(place)

    def exempt(self, place: ConnectionPlace) -> None:
        """Count a place to no owner any more."""
        if self._remove(place):
            self._exempt.add(place)
            self.taken += 1

    def settle(self, place: ConnectionPlace) -> None:
        """Free a place without connection and work."""
        if not place.connected and (place.idle or place in self._exempt):
            self._remove(place)

    def evict_idle(self, why: str) -> bool:
        """Close the longest idle connection of the owner with the most; whether there was one. Its client is
        told why no more can be open."""
        said = BusyError(
            f"{why}, and another needs the place of this one, which was idle; try again in a moment", 503
        )
        every = sorted(self._places, key=self._taken_by, reverse=True)
        return any(self._evict_one(other, said) for other in every)

    def tell_rest(self) -> None:
        """Tell of hits that came soon after the last that was told, and forget owners that hit no bound any
        more. Call it every `TELL_S`: so a flood that ends is reported in full."""
        now = self.now()
        due = [found for found in self._hits.items() if now - found[1].told_at >= TELL_S]
        for (bound, owner), hits in due[:TOLD_AT_ONCE]:
            if hits.untold:
                self.told(bound, _name(owner), hits.untold)
                hits.told_at, hits.untold = now, 0
            else:
                del self._hits[bound, owner]

    def _taken_by(self, owner: Owner) -> int:
        return len(self._places.get(owner, ()))

    def _room_for(self, owner: Owner) -> None:
        if self._taken_by(owner) < self.bounds.each:
            return
        self._tell("max_connections_per_user", owner)
        most = f"{self.bounds.each} connections of yours are open at once"
        said = f"{most}, and another needs the place of this one, which was idle; try again in a moment"
        if not self._evict_one(owner, BusyError(said, 429)):
            raise BusyError(
                f"{self.bounds.each} requests of yours are in work already, as many as may be at once; "
                "try again in a moment",
                429,
            )

    def _evict_one(self, owner: Owner, said: BusyError) -> bool:
        found = next((place for place in self._places.get(owner, ()) if place.idle), None)
        if found is None:
            return False
        self._remove(found)
        found.evicted = said
        found.evict(said)
        return True

    def _add(self, place: ConnectionPlace) -> None:
        self._places.setdefault(place.owner, {})[place] = None
        self.taken += 1

    def _remove(self, place: ConnectionPlace) -> bool:
        """Take a place out; whether it was there."""
        places = self._places.get(place.owner, {})
        if place in self._exempt:
            self._exempt.remove(place)
        elif place in places:
            del places[place]
            if not places:
                del self._places[place.owner]
        else:
            return False
        self.taken -= 1
        return True

    def _tell(self, bound: str, owner: Owner) -> bool:
        """Count a hit of a bound; whether it was told, too. So a flood costs little more than its refusal."""
        now, key = self.now(), (bound, owner)
        if key not in self._hits and len(self._hits) >= MAX_QUIET:
            self._hits.clear()
        hits = self._hits.setdefault(key, _Hits())
        hits.untold += 1
        if now - hits.told_at < TELL_S:
            return False
        self.told(bound, _name(owner), hits.untold)
        hits.told_at, hits.untold = now, 0
        return True

    def _charge(self, owner: Owner) -> None:
        """Count one request to an owner's rate."""
        rate, now = self.bounds.per_second, self.now()
        if rate is None:
            return
        if owner not in self._buckets:
            self._buckets[owner] = Bucket(rate, rate * BURST_S, self.now)
        if len(self._buckets) > MAX_QUIET and now - self._pruned_at > BURST_S:
            self._pruned_at = now
            self._buckets = {other: b for other, b in self._buckets.items() if other == owner or not b.full}
        if self._buckets[owner].take_if_enough():
            self._tell("max_requests_per_second", owner)
            raise BusyError(
                f"you send more than {rate:g} requests in a second (max_requests_per_second); send fewer, "
                "and try again in a moment",
                429,
            )


def _name(owner: Owner) -> str:
    """An owner as admins read it."""
    kind, which = owner
    return f"uid {which}" if kind == "user" else str(which)
