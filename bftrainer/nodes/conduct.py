"""Which nodes and which users get no pilots for a while, because pilots failed.

A user can end its own pilots, and the commands that run as that user. So what its pilots meet with counts
against this user, on that node and, if it happens often, everywhere. A node is left alone by all only if the
scheduler says so, or if the pilots of several users fail there, or if nobody else wants it.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from bftrainer.model.backoff import backoff_s
from bftrainer.ports import Clock

K = TypeVar("K")

BACKOFF_S = 5.0
"""A failure is tried again so much later, twice as much after every further one, `MAX_BACKOFF_S` at most."""
MAX_BACKOFF_S = 300.0
OFTEN = 4
"""So many failures within `RECENT_S` count against a user everywhere."""
RECENT_S = 60.0
SHORT_S = 60.0
"""A pilot that ends before has had a short life."""
IN_A_ROW = 3
"""If so many submissions fail in a row, the cause is not their nodes."""
MOST_FAILED = 100
"""So many failures in a row are remembered."""
FORGIVEN_S = 600.0
"""A failure no longer counts so long after its effect is over."""
TOO_SHORT = "its pilots are told to end soon after their start"
"""Main jobs do that as well: the first in a row says nothing."""


@dataclass(slots=True)
class Refusals:
    """How often something was refused in a row, why, and until when it is not tried again."""

    count: int = 0
    until: float = 0.0
    reason: str = ""

    def more(self, now: float, reason: str) -> None:
        """It was refused once more."""
        self.count += 1
        self.until = now + backoff_s(BACKOFF_S, self.count - 1, MAX_BACKOFF_S)
        self.reason = reason


@dataclass(slots=True)
class Conduct:
    """Counts failures, and says what follows from them. The user "" is the daemon's own: it has nobody to be
    protected from, so its failures count against the node.

    `users` are those with unfinished trainers, empty if not known. `hit` is told of a user that gets no
    pilots for a while, with the reason.
    """

    clock: Clock
    users: Callable[[], frozenset[str]] = frozenset
    hit: Callable[[str, str], None] = lambda user, reason: None
    _nodes: dict[str, Refusals] = field(default_factory=dict)  # what the scheduler says of the node
    _on: dict[tuple[str, str], Refusals] = field(default_factory=dict)  # of a user's pilots on a node
    _short: dict[tuple[str, str], Refusals] = field(default_factory=dict)  # pilots that ended soon
    _users: dict[str, Refusals] = field(default_factory=dict)
    _failed: list[str] = field(default_factory=list)  # the users of submissions that failed in a row
    _recent: defaultdict[str, deque[float]] = field(default_factory=lambda: defaultdict(deque))

    def node_fails(self, node: str, reason: str) -> None:
        """A node cannot have pilots of any user."""
        self._nodes.setdefault(node, Refusals()).more(self.clock.now(), reason)

    def fails(self, node: str, user: str, reason: str) -> None:
        """A user's pilot failed on a node."""
        if not user:
            self.node_fails(node, reason)
            return
        self._on.setdefault((node, user), Refusals()).more(self.clock.now(), reason)
        self._strike(user, reason)

    def refused(self, node: str, user: str, reason: str) -> frozenset[str]:
        """A submission failed. Returns as whose user all have failed for a while, empty if they did not."""
        self.fails(node, user, reason)
        self._failed = [*self._failed, user][-MOST_FAILED:]
        failed = frozenset(self._failed)
        if len(self._failed) < IN_A_ROW:
            return frozenset()
        if user and len(failed) == 1:
            self.bar(user, reason)
        return failed

    def accepted(self) -> None:
        """A submission was accepted."""
        self._failed.clear()

    def ended(self, node: str, user: str, lived_s: float) -> bool:
        """A user's pilot has ended after so long, though its node is ours. Returns whether pilots of this
        user end soon there again and again."""
        if lived_s >= SHORT_S:
            self._short.pop((node, user), None)
        else:
            self.ends_soon(node, user)
        return (node, user) in self._short and self._short[node, user].count > 1

    def ends_soon(self, node: str, user: str) -> None:
        """A user's pilot has ended soon after its start."""
        found = self._short.setdefault((node, user), Refusals())
        found.more(self.clock.now(), TOO_SHORT)
        if found.count > 1 and user:
            self._strike(user, TOO_SHORT)

    def reports(self, node: str, user: str) -> None:
        """A user's agent has come: earlier refusals there no longer count."""
        self._nodes.pop(node, None)
        self._on.pop((node, user), None)

    def bar(self, user: str, reason: str) -> None:
        """A user gets no pilots for a while."""
        now = self.clock.now()
        found = self._users.setdefault(user, Refusals())
        if found.until <= now:  # what was under way then says nothing more
            found.more(now, reason)
            self.hit(user, reason)

    def nodes(self) -> dict[str, str]:
        """Node -> why nobody's pilots are submitted for it at the moment."""
        now, users = self.clock.now(), self.users()
        self._forget(now)
        blamed: defaultdict[str, dict[str, str]] = defaultdict(dict)
        for (node, user), found in self._short.items():
            if found.until > now and found.count > 1:
                blamed[node][user] = found.reason
        for (node, user), found in self._on.items():
            if found.until > now:
                blamed[node][user] = found.reason
        shared = {
            node: next(iter(own.values()))
            for node, own in blamed.items()
            if len(own) > 1 or "" in own or users <= own.keys()
        }
        return shared | {node: r.reason for node, r in self._nodes.items() if r.until > now}

    def allows(self, node: str, user: str) -> bool:
        """Whether a user may have a pilot on a node now, as far as its own pilots count."""
        barred = self._users.get(user)
        return (barred is None or barred.until <= self.clock.now()) and self._on_node(node, user)

    def barred(self) -> dict[str, str]:
        """User -> why it gets no pilots at the moment."""
        now = self.clock.now()
        return {user: found.reason for user, found in self._users.items() if found.until > now}

    def kept_off(self) -> dict[str, frozenset[str]]:
        """User -> the nodes on which it gets no pilots at the moment, by what its own met with there."""
        found: defaultdict[str, set[str]] = defaultdict(set)
        for node, user in self._on.keys() | self._short.keys():
            if user and not self._on_node(node, user):
                found[user].add(node)
        return {user: frozenset(nodes) for user, nodes in found.items()}

    def _on_node(self, node: str, user: str) -> bool:
        now = self.clock.now()
        on, short = self._on.get((node, user)), self._short.get((node, user))
        return (on is None or on.until <= now) and (short is None or short.until <= now or short.count < 2)

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
        self._nodes = _kept(self._nodes, now)
        self._on, self._short = _kept(self._on, now), _kept(self._short, now)
        self._users = _kept(self._users, now)
        for user, recent in tuple(self._recent.items()):
            if not recent or now - recent[-1] >= RECENT_S:
                del self._recent[user]


def _kept(refusals: dict[K, Refusals], now: float) -> dict[K, Refusals]:
    """Those that may still count."""
    return {key: found for key, found in refusals.items() if found.until + FORGIVEN_S > now}
