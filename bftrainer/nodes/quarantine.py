"""Keeps pilots off nodes, and users from pilots, for a while after pilots failed.

A user can end its own pilots, and the commands that run as that user. So what its pilots meet with counts
against this user, on that node and, if it happens often, everywhere. A node is left alone by all only if the
scheduler says so, or if the pilots of all users that want nodes fail there: of two whom the site lets submit
nothing, the pilots fail wherever they try.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import inf

from bftrainer.model.backoff import backoff_s
from bftrainer.ports import Clock

BACKOFF_S = 5.0
"""Seconds until a failure is retried, twice as much after every further one, `MAX_BACKOFF_S` at most."""
MAX_BACKOFF_S = 300.0
FULL_S = 60.0
"""Seconds, at most, where the scheduler takes no jobs at all, which is no user's fault."""
OFTEN = 4
"""Failures within `RECENT_S` from which on they count against a user everywhere."""
RECENT_S = 60.0
SHORT_S = 60.0
"""A pilot that ends before has had a short life."""
IN_A_ROW = 3
"""Failed submissions in a row from which on the cause is not their nodes."""
MOST_FAILED = 100
"""Failures in a row that are remembered."""
FORGIVEN_S = 600.0
"""Seconds after its effect when a failure no longer counts."""
TOO_SHORT = "its pilots are told to end soon after their start"
"""Main jobs do that as well: the first in a row says nothing."""


@dataclass(frozen=True, slots=True)
class Refusals:
    """Counts refusals in a row, with the reason, and the time until which nothing is retried."""

    count: int = 0
    until: float = 0.0
    reason: str = ""

    def more(self, now: float, reason: str) -> Refusals:
        """It was refused once more."""
        return Refusals(self.count + 1, now + backoff_s(BACKOFF_S, self.count, MAX_BACKOFF_S), reason)

    def as_all(self, now: float, reason: str) -> Refusals:
        """It was refused as all would have been: however often, it is tried again within `FULL_S`."""
        return Refusals(self.count + 1, now + backoff_s(BACKOFF_S, self.count, FULL_S), reason)

    def kept(self, now: float) -> Refusals:
        """Return the refusals that may still count."""
        return self if self.until + FORGIVEN_S > now else NONE


NONE = Refusals()


@dataclass(frozen=True, slots=True)
class Failures:
    """Pilots of one user on a node that went wrong: those that `failed`, and those of a `short` life."""

    failed: Refusals = NONE
    short: Refusals = NONE

    def blames(self, now: float) -> str:
        """Return why this user gets no pilot there now; "" if it does. The first short life says nothing."""
        if self.failed.until > now:
            return self.failed.reason
        return self.short.reason if self.short.until > now and self.short.count > 1 else ""

    def blames_until(self, now: float) -> float:
        """Until when; 0.0 if this user gets one there."""
        short = self.short.until if self.short.count > 1 else 0.0
        return max(self.failed.until, short) if self.blames(now) else 0.0


@dataclass(slots=True)
class Quarantine:
    """Counts failures, and decides what follows from them. The user "" is the daemon's own: it has nobody to
    be protected from, so its failures count against the node, as does what the scheduler says of the node.

    `users` are those with unfinished trainers, empty if not known. `hit` is called with a user that gets no
    pilots for a while, and the reason.
    """

    clock: Clock
    users: Callable[[], frozenset[str]] = frozenset
    hit: Callable[[str, str], None] = lambda user, reason: None
    _met: dict[tuple[str, str], Failures] = field(default_factory=dict)  # by node and user
    _users: dict[str, Refusals] = field(default_factory=dict)
    _failed: list[str] = field(default_factory=list)  # the users of submissions that failed in a row
    _recent: defaultdict[str, deque[float]] = field(default_factory=lambda: defaultdict(deque))

    def node_fails(self, node: str, reason: str) -> None:
        """A node cannot have pilots of any user."""
        self._fail(node, "", reason)

    def fails(self, node: str, user: str, reason: str) -> None:
        """A user's pilot failed on a node."""
        self._fail(node, user, reason)
        if user:
            self._strike(user, reason)

    def _fail(self, node: str, user: str, reason: str) -> None:
        met = self._met.get((node, user), Failures())
        self._met[node, user] = replace(met, failed=met.failed.more(self.clock.now(), reason))

    def refused(self, node: str, user: str, reason: str) -> frozenset[str]:
        """A submission failed. Returns as whose user all have failed for a while, empty if they did not."""
        self.fails(node, user, reason)
        self._failed = [*self._failed, user][-MOST_FAILED:]
        if user and self._failed.count(user) >= IN_A_ROW:
            self.bar(user, reason)
        return frozenset(self._failed) if len(self._failed) >= IN_A_ROW else frozenset()

    def accepted(self) -> None:
        """A submission was accepted."""
        self._failed.clear()

    def ended(self, node: str, user: str, lived_s: float) -> bool:
        """A user's pilot has ended after `lived_s`, though its node is ours. Returns whether pilots of this
        user end soon there again and again."""
        if lived_s < SHORT_S:
            self.ends_soon(node, user)
        elif (met := self._met.get((node, user))) is not None:
            self._met[node, user] = replace(met, short=NONE)
        return self._met.get((node, user), Failures()).short.count > 1

    def ends_soon(self, node: str, user: str) -> None:
        """A user's pilot has ended soon after its start."""
        met = self._met.get((node, user), Failures())
        self._met[node, user] = met = replace(met, short=met.short.more(self.clock.now(), TOO_SHORT))
        if met.short.count > 1 and user:
            self._strike(user, TOO_SHORT)

    def reports(self, node: str, user: str) -> None:
        """A user's agent has come: earlier refusals there no longer count."""
        for key in ((node, ""), (node, user)):
            if (met := self._met.get(key)) is not None:
                self._met[key] = replace(met, failed=NONE)

    def bar(self, user: str, reason: str) -> None:
        """A user gets no pilots for a while."""
        now = self.clock.now()
        found = self._users.get(user, NONE)
        if found.until <= now:  # what was under way then says nothing more
            self._users[user] = found.more(now, reason)
            self.hit(user, reason)

    def rest(self, user: str, reason: str) -> None:
        """A user gets no pilots for a moment, though it has done nothing: the scheduler takes no jobs."""
        now = self.clock.now()
        found = self._users.get(user, NONE)
        if found.until <= now:
            self._users[user] = found.as_all(now, reason)

    def nodes(self) -> dict[str, str]:
        """Node -> why nobody's pilots are submitted for it at the moment."""
        now, users = self.clock.now(), self.users()
        self._forget(now)
        blamed: defaultdict[str, dict[str, str]] = defaultdict(dict)
        for (node, user), met in self._met.items():
            if why := met.blames(now):
                blamed[node][user] = why
        return {
            node: own.get("") or next(iter(own.values()))
            for node, own in blamed.items()
            if "" in own or users <= own.keys()
        }

    def retried(self) -> dict[str, float]:
        """Node -> when a pilot is first tried again there (Unix s), of those that `nodes` names at least."""
        now, of_users, of_all = self.clock.now(), dict[str, float](), dict[str, float]()
        for (node, user), met in self._met.items():
            if until := met.blames_until(now):
                found = of_users if user else of_all
                found[node] = min(until, found.get(node, inf))
        return of_users | of_all

    def allows(self, node: str, user: str) -> bool:
        """Return whether a user may have a pilot on a node now, as far as its own pilots count."""
        barred = self._users.get(user)
        return (barred is None or barred.until <= self.clock.now()) and self._on_node(node, user)

    def barred(self) -> dict[str, str]:
        """User -> why it gets no pilots at the moment."""
        now = self.clock.now()
        return {user: found.reason for user, found in self._users.items() if found.until > now}

    def kept_off(self) -> dict[str, frozenset[str]]:
        """User -> the nodes on which it gets no pilots at the moment, by what its own met with there."""
        found: defaultdict[str, set[str]] = defaultdict(set)
        for node, user in self._met:
            if user and not self._on_node(node, user):
                found[user].add(node)
        return {user: frozenset(nodes) for user, nodes in found.items()}

    def _on_node(self, node: str, user: str) -> bool:
        """Return whether what a user's pilots met with on a node lets it have another."""
        met = self._met.get((node, user), Failures())
        if not user:  # what the scheduler says of the node is no matter of its users
            met = replace(met, failed=NONE)
        return not met.blames(self.clock.now())

    def _strike(self, user: str, reason: str) -> None:
        now, recent = self.clock.now(), self._recent[user]
        recent.append(now)
        while recent and now - recent[0] >= RECENT_S:
            recent.popleft()
        if len(recent) >= OFTEN:
            recent.clear()
            self.bar(user, f"{OFTEN} pilots failed within {RECENT_S:g} s, the last one because {reason}")

    def _forget(self, now: float) -> None:
        """Forget what is long over, so that no user's past fills the memory."""
        met = {
            key: Failures(found.failed.kept(now), found.short.kept(now)) for key, found in self._met.items()
        }
        self._met = {key: found for key, found in met.items() if found != Failures()}
        self._users = {user: found for user, found in self._users.items() if found.kept(now) is found}
        for user, recent in tuple(self._recent.items()):
            if not recent or now - recent[-1] >= RECENT_S:
                del self._recent[user]
