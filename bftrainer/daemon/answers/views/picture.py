"""The picture that readers of the feed know, and the events that tell them: states and changes. Pure."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from bftrainer.api.listing import dumps, joined
from bftrainer.api.stream import event
from bftrainer.daemon.answers.views.changes import Changes, FeedRows, K, all_of, of_user

LAST = "trainers"
"""The part that a state ends with."""
ROWS, END = b', "trainers": [', b"}\n\n"


@dataclass(slots=True)
class FeedPicture:
    """All that is told. `status`: by group of callers; `decisions`: how many there were; `is_new`: nothing
    was looked at yet."""

    is_new: bool = True
    seq: int = 0
    trainers: FeedRows[int] = field(default_factory=FeedRows)
    nodes: FeedRows[str] = field(default_factory=FeedRows)
    studies: FeedRows[int] = field(default_factory=FeedRows)
    status: dict[str, bytes] = field(default_factory=dict)
    decisions: int = 0


@dataclass(frozen=True, slots=True)
class FeedChange:
    """The differences from the last picture. `status` names the groups of callers that see another status."""

    trainers: Changes[int]
    nodes: Changes[str]
    studies: Changes[int]
    status: frozenset[str]
    decisions: bool

    def __bool__(self) -> bool:
        return any((self.trainers, self.nodes, self.studies, self.status, self.decisions))


@dataclass(slots=True)
class _Told:
    """A reader's message, as it is put together: JSON by part, and the keys of rows that went."""

    parts: dict[str, bytes] = field(default_factory=dict)
    gone: dict[str, list[bytes]] = field(default_factory=dict)

    def rows(self, part: str, found: Changes[K], user: str | None) -> None:
        """Add the changes of one part that a user gets."""
        texts, left = of_user(found, user)
        if texts:
            self.parts[part] = joined(texts)
        if left:
            self.gone[part] = [dumps(key).encode() for key in left]

    def event(self, name: str, seq: int) -> bytes:
        """Return the event: `seq`, `time`, the parts, and `gone`."""
        head = f'{{"seq": {seq}, "time": {time.time():.3f}'.encode()
        rows = b"".join(b', "' + part.encode() + b'": ' + text for part, text in self.parts.items())
        left = b", ".join(b'"' + part.encode() + b'": ' + joined(keys) for part, keys in self.gone.items())
        return event(name, head + rows + (b', "gone": {' + left + b"}" if left else b"") + b"}")


def state_event(picture: FeedPicture, user: str | None, group: str, parts: tuple[str, ...]) -> bytes:
    """Return the whole picture for a user of a group of callers; None stands for admins."""
    made: dict[str, Callable[[], bytes]] = {
        "status": lambda: picture.status.get(group, b"null"),
        "trainers": lambda: all_of(picture.trainers, user),
        "nodes": lambda: all_of(picture.nodes, user),
        "studies": lambda: all_of(picture.studies, user),
        "decisions": lambda: str(picture.decisions).encode(),
    }
    return _Told({part: made[part]() for part in parts}).event("state", picture.seq)


def state_begin(picture: FeedPicture, user: str | None, group: str, parts: tuple[str, ...]) -> bytes:
    """Return the beginning of `state_event`, up to the trainers: they may be many, and take long to make."""
    head = state_event(picture, user, group, tuple(part for part in parts if part != LAST))
    return head.removesuffix(END) + (ROWS if LAST in parts else b"")


def state_rest(picture: FeedPicture, user: str | None, group: str, parts: tuple[str, ...]) -> bytes:
    """Return what comes after `state_begin`."""
    return (all_of(picture.trainers, user).removeprefix(b"[") if LAST in parts else b"") + END


def change_event(
    picture: FeedPicture, changed: FeedChange, user: str | None, group: str, parts: tuple[str, ...]
) -> bytes:
    """Return the part of a change that a user may see; empty if it concerns none of the user's rows."""
    told = _Told()
    if "trainers" in parts:
        told.rows("trainers", changed.trainers, user)
    if "nodes" in parts:
        told.rows("nodes", changed.nodes, user)
    if "studies" in parts:
        told.rows("studies", changed.studies, user)
    if "status" in parts and group in changed.status:
        told.parts["status"] = picture.status[group]
    if "decisions" in parts and changed.decisions:
        told.parts["decisions"] = str(picture.decisions).encode()
    return told.event("change", picture.seq) if told.parts or told.gone else b""
