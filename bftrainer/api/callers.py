"""Who is calling: the kernel says so on the Unix socket, munge over TCP."""

from __future__ import annotations

import asyncio
import grp
import os
import pwd
import socket
import struct
from collections.abc import Callable, Collection
from dataclasses import dataclass

from aiohttp import web

from bftrainer.api.munge import Munge, MungeError, digest
from bftrainer.errors import BftrainerError

SCHEME = "Munge"


class StrangerError(BftrainerError):
    """Nobody vouches for who is calling."""


class NotAllowedError(BftrainerError):
    """It is known who is calling, and that they may not."""


@dataclass(frozen=True, slots=True)
class Caller:
    """A user of this machine. Admins see and cancel what is everybody's."""

    user: str
    uid: int
    admin: bool = False

    def may_see(self, owner: str) -> bool:
        """Whether this caller may know of, and end, what belongs to `owner`."""
        return self.admin or self.user == owner


NOBODY = Caller("-", -1)
"""Who is not known: what is told to them may be told to everybody."""


@dataclass(frozen=True, slots=True)
class Callers:
    """Tells callers apart.

    Without `site`, there is one: the user whose daemon this is (or root), who may do everything. With it,
    everybody who has a name on this machine is let in; admins are root, the daemon's own account and
    whom `admins` names at the moment: users and @groups. `munge` None: nobody is known over TCP.
    """

    site: bool = False
    admins: Callable[[], Collection[str]] = tuple
    munge: Munge | None = None

    async def of(self, request: web.Request) -> Caller:
        """Who sent a request.

        Raises:
            StrangerError: nobody can say.
            NotAllowedError: this daemon does not serve them.
        """
        peer = request.get_extra_info("socket")
        if peer is not None and peer.family == socket.AF_UNIX:
            uid = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1]
        else:
            uid = await self._vouched_for(request)
        return await asyncio.to_thread(self.known, uid)  # a directory service may be asked for the name

    def known(self, uid: int) -> Caller:
        """The caller of a user number; raises `NotAllowedError` as `of` does."""
        trusted = uid in (0, os.geteuid())
        try:
            entry = pwd.getpwuid(uid)
        except KeyError:
            if self.site or not trusted:
                raise NotAllowedError(f"user {uid} has no name on the daemon's machine") from None
            return Caller(str(uid), uid, admin=True)
        if not self.site and not trusted:
            raise NotAllowedError(f"this daemon serves its own user only, not {entry.pw_name}")
        return Caller(entry.pw_name, uid, admin=trusted or self._is_admin(entry.pw_name, entry.pw_gid))

    def _is_admin(self, user: str, group: int) -> bool:
        admins = self.admins()
        groups = [name.removeprefix("@") for name in admins if name.startswith("@")]
        return user in admins or (
            bool(groups) and any(_group(gid) in groups for gid in os.getgrouplist(user, group))
        )

    async def _vouched_for(self, request: web.Request) -> int:
        if self.munge is None:
            raise StrangerError("over TCP nobody is known here: the daemon's setting munge is off")
        scheme, _, credential = request.headers.get("Authorization", "").partition(" ")
        if scheme != SCHEME:
            raise StrangerError("show a munge credential; bftrainer does so where its setting server is set")
        try:
            wanted = digest(request.method, request.raw_path, await request.read())
            return await self.munge.decode(credential, wanted)
        except MungeError as error:
            raise StrangerError(str(error)) from error


def _group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return ""
