"""Identifies the user who sent a request: by the kernel on the Unix socket, by munge over TCP."""

from __future__ import annotations

import grp
import os
import pwd
import socket
from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from bftrainer.api.lookups import Lookups
from bftrainer.api.munge import SCHEME, Munge, MungeError, digest
from bftrainer.api.transport.accept import SUBORDINATE, peer_uid
from bftrainer.api.transport.connection import connection_of
from bftrainer.errors import BftrainerError
from bftrainer.messages.commands.reaching import NOT_FOR_HIM, UNKNOWN_CALLER


class UnauthenticatedError(BftrainerError):
    """Neither the kernel nor munge tells which user sent the request."""

    def __init__(self, why: str) -> None:
        super().__init__(UNKNOWN_CALLER.ends(why))


class NotAllowedError(BftrainerError):
    """The user is known, and may not do this."""

    def __init__(self, why: str) -> None:
        super().__init__(NOT_FOR_HIM.ends(why))


@dataclass(frozen=True, slots=True)
class Caller:
    """A user of this machine. Admins see and cancel the trainers of all users."""

    user: str
    uid: int
    admin: bool = False

    def may_see(self, owner: str) -> bool:
        """Return whether this caller may see and end the trainers of `owner`."""
        return self.admin or self.user == owner


USERS = Path("/etc/passwd")


def changed() -> int:
    """Return when this machine's own users have changed last (ns): a number may be another user's since."""
    try:
        return USERS.stat().st_mtime_ns
    except OSError:  # all are in a directory
        return 0


NOBODY = Caller("-", -1)
"""A caller that is not known: it learns only what every user may know."""


class Callers:
    """Finds out which user sent a request, and whether it is an admin.

    Without `site`, the daemon serves its own user and root, both as admins. With it, the daemon serves every
    user that has a name on this machine. Then admins are root, the daemon's own account, and the users and
    @groups that `admins` returns at the moment. Without `munge`, no caller is known over TCP. A look-up of a
    user that takes longer than `lookup_s` is given up.
    """

    def __init__(
        self,
        *,
        site: bool = False,
        admins: Callable[[], Collection[str]] = tuple,
        munge: Munge | None = None,
        lookup_s: float = 5.0,
    ) -> None:
        self._site, self._admins, self._munge = site, admins, munge
        what = "the directory of users (NSS)"
        self._users = Lookups(self._look_up, what=what, timeout_s=lookup_s, group=self._group)
        self._named: set[int] = set()

    async def of(self, request: web.Request) -> Caller:
        """Return the user that sent a request.

        Raises:
            UnauthenticatedError: The user is not known.
            NotAllowedError: This daemon does not serve the user.
            BusyError: The user has too many requests in work, or cannot be looked up now.
        """
        peer = request.get_extra_info("socket")
        if peer is not None and peer.family == socket.AF_UNIX:
            uid = peer_uid(peer)
        else:
            uid = await self._authenticated(request)
        try:
            caller = await self._users.find((uid, frozenset(self._admins()), changed()))
        except NotAllowedError:
            self._named.discard(uid)
            raise
        self._named.add(uid)
        if connection := connection_of(request):
            connection.place.belongs_to(uid)
        return caller

    def named(self, uid: int) -> bool:
        """Return whether it is known that a user number has a name: that of an earlier request."""
        return uid in self._named

    def _group(self, asked: tuple[int, frozenset[str], int]) -> Hashable:
        """Return the caller's group: user numbers without a known name may all be one user's, as in
        `transport.accept`."""
        uid = asked[0]
        return asked if uid < SUBORDINATE or self.named(uid) else uid // SUBORDINATE

    def _look_up(self, asked: tuple[int, frozenset[str], int]) -> Caller:
        return self.known(asked[0])

    def known(self, uid: int) -> Caller:
        """Return the caller with a user number.

        Raises:
            NotAllowedError: This daemon does not serve the user.
        """
        trusted = uid in (0, os.geteuid())
        try:
            entry = pwd.getpwuid(uid)
        except KeyError:
            if self._site or not trusted:
                raise NotAllowedError(f"user {uid} has no name on the daemon's machine") from None
            return Caller(str(uid), uid, admin=True)
        if not self._site and not trusted:
            raise NotAllowedError(f"this daemon serves its own user only, not {entry.pw_name}")
        return Caller(entry.pw_name, uid, admin=trusted or self._is_admin(entry.pw_name, entry.pw_gid))

    def _is_admin(self, user: str, group: int) -> bool:
        admins = self._admins()
        groups = [name.removeprefix("@") for name in admins if name.startswith("@")]
        return user in admins or (
            bool(groups) and any(_group(gid) in groups for gid in os.getgrouplist(user, group))
        )

    async def _authenticated(self, request: web.Request) -> int:
        if self._munge is None:
            raise UnauthenticatedError("over TCP nobody is known here: the daemon's setting munge is off")
        scheme, _, credential = request.headers.get("Authorization", "").partition(" ")
        if scheme != SCHEME:
            raise UnauthenticatedError(
                "show a munge credential; bftrainer does so where its setting server is set"
            )
        try:
            wanted = digest(request.method, request.raw_path, await request.read())
            return await self._munge.decode(credential, wanted)
        except MungeError as error:
            raise UnauthenticatedError(str(error)) from error


def _group(gid: int) -> str:
    """Return a group's name; empty if it has none."""
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return ""
