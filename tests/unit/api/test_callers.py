"""Who is calling, and who counts as an admin."""

from __future__ import annotations

import asyncio
import contextlib
import grp
import os
import pwd
import socket
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.api import callers
from bftrainer.api.callers import NOBODY, Caller, Callers, NotAllowedError

SERVICE = 990
USERS = {"root": (0, 0), "bftrainer": (SERVICE, SERVICE), "alice": (1001, 100), "bob": (1002, 200)}
GROUPS = {"users": 100, "staff": 200, "ops": 300}
ALSO_IN = {"alice": [300]}


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with these users and groups, and a daemon of the service account."""

    def user(uid: int) -> SimpleNamespace:
        name = next(name for name, (number, _) in USERS.items() if number == uid)
        return SimpleNamespace(pw_name=name, pw_gid=USERS[name][1])

    def group(gid: int) -> SimpleNamespace:
        return SimpleNamespace(gr_name=next(name for name, number in GROUPS.items() if number == gid))

    def looked_up(what):  # type: ignore[no-untyped-def]
        def look(number: int) -> SimpleNamespace:
            try:
                return what(number)  # type: ignore[no-any-return]
            except StopIteration:
                raise KeyError(number) from None

        return look

    monkeypatch.setattr(pwd, "getpwuid", looked_up(user))
    monkeypatch.setattr(grp, "getgrgid", looked_up(group))
    monkeypatch.setattr(os, "geteuid", lambda: SERVICE)
    monkeypatch.setattr(os, "getgrouplist", lambda name, gid: [gid, 4711, *ALSO_IN.get(name, [])])


@pytest.mark.parametrize("uid", [0, SERVICE])
@pytest.mark.parametrize("site", [True, False])
def test_root_and_the_daemons_own_account_may_do_everything(uid: int, site: bool) -> None:
    assert Callers(site=site).known(uid).admin


def test_numbers_without_a_known_name_are_looked_up_together() -> None:
    """A user can connect as each of its subordinate numbers."""
    own = Callers(site=True)

    def group(uid: int) -> object:
        return own._group((uid, frozenset(), 0))

    assert len({group(uid) for uid in (1001, 1002, 70_000, 100_000, 200_000)}) == 4
    own._named.add(100_000)
    assert group(100_000) != group(70_000)


def test_a_single_users_daemon_serves_nobody_else() -> None:
    with pytest.raises(NotAllowedError, match="its own user only, not alice"):
        Callers().known(1001)
    with pytest.raises(NotAllowedError, match="has no name"):
        Callers().known(5555)


@pytest.mark.parametrize(
    ("admins", "who"),
    [
        ((), set()),
        (("bob",), {"bob"}),
        (("@ops",), {"alice"}),
        (("@users", "@staff"), {"alice", "bob"}),
        (("ops", "@bob", "@nowhere", ""), set()),
    ],
)
def test_admins_are_users_and_members_of_groups(admins: tuple[str, ...], who: set[str]) -> None:
    callers = Callers(site=True, admins=lambda: admins)
    assert {u for u in ("alice", "bob") if callers.known(USERS[u][0]).admin} == who


def test_who_has_no_name_is_not_served_by_a_site() -> None:
    with pytest.raises(NotAllowedError, match="user 5555 has no name"):
        Callers(site=True, admins=lambda: ("@ops",)).known(5555)


names = st.text(st.characters(codec="ascii", categories=["L", "N"]), max_size=3)


@given(names, names, st.booleans())
def test_only_admins_see_what_is_others(user: str, owner: str, admin: bool) -> None:
    assert Caller(user, 1, admin).may_see(owner) is (admin or user == owner)
    assert not NOBODY.may_see(owner)


def test_a_user_is_known_by_name_after_its_first_request(monkeypatch: pytest.MonkeyPatch) -> None:
    callers = Callers(site=True)
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    request: Any = SimpleNamespace(get_extra_info=lambda name: ours, protocol=None)
    with ours, theirs:
        for uid in (1001, 5555):
            assert not callers.named(uid)
            monkeypatch.setattr("bftrainer.api.callers.peer_uid", lambda client, uid=uid: uid)
            with contextlib.suppress(NotAllowedError):
                asyncio.run(callers.of(request))
    assert callers.named(1001)
    assert not callers.named(5555)


def test_a_number_that_is_another_users_now_is_known_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a new user would have the trainers of the one who had its number, for a minute."""
    names, changes = {1001: "alice"}, [1, 1, 2]
    monkeypatch.setattr(callers, "changed", lambda: changes.pop(0))
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: SimpleNamespace(pw_name=names[uid], pw_gid=100))
    monkeypatch.setattr(callers, "peer_uid", lambda client: 1001)
    peer = SimpleNamespace(family=socket.AF_UNIX)
    request: Any = SimpleNamespace(get_extra_info=lambda name: peer, protocol=None)
    asked = Callers(site=True)

    async def scenario() -> list[str]:
        found = [(await asked.of(request)).user]
        names[1001] = "eve"
        found.append((await asked.of(request)).user)
        return [*found, (await asked.of(request)).user]

    assert asyncio.run(scenario()) == ["alice", "alice", "eve"]
