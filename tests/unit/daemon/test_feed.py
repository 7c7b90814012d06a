"""The feed: one state, then what differs, each reader told what its user may know, within bounds."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.api import stream
from bftrainer.api.callers import Caller, Callers
from bftrainer.api.client import Client, DaemonError
from bftrainer.api.follow import EventParser, FeedState, followed
from bftrainer.api.routes import users_application
from bftrainer.api.stream import PARTS, SHARED, SLOW, FeedReader, event
from bftrainer.api.transport.admission import BusyError
from bftrainer.daemon.answers.feed import READERS, READERS_OF_USER
from bftrainer.daemon.answers.views.changes import FeedRows, private
from bftrainer.daemon.answers.views.feed import NodeFacts, node_line
from bftrainer.daemon.answers.views.picture import FeedChange, FeedPicture, change_event, state_event
from bftrainer.daemon.daemon import Daemon
from bftrainer.engine.restore import restore
from bftrainer.model.machine import Node, NodeState
from bftrainer.model.trainer import Trainer, TrainerSpec
from bftrainer.store.sql import SqlStore
from bftrainer.testing.memory import Machine, MemoryScheduler
from tests.support.nodes_world import settings_in
from tests.support.serving import serving

SPEC = TrainerSpec(name="t", command=("python", "train.py"), n_min=1, n_max=2, samples=100)
ADMIN, ALICE, BOB = Caller("root", 0, admin=True), Caller("alice", 1), Caller("bob", 2)
USERS = (None, "alice", "bob", "carol")


def parsed(text: bytes) -> tuple[str, dict[str, Any]]:
    ((name, data),) = EventParser().take(text)
    return name, data


def holder(user: str, name: str) -> NodeFacts:
    free = NodeFacts(Node(name="n", state=NodeState.BUSY), None, False, "", "")
    return free if not user else free._replace(trainer=1, name=name, user=user, role="member")


worlds = st.lists(
    st.tuples(
        st.dictionaries(st.integers(0, 5), st.tuples(st.sampled_from(USERS[1:]), st.integers(0, 2))),
        st.dictionaries(st.sampled_from("abc"), st.tuples(st.sampled_from(("", *USERS[1:])), st.text("xy"))),
    ),
    min_size=1,
    max_size=6,
)


@given(worlds)
def test_a_state_and_the_changes_after_it_are_the_later_state(steps: list[Any]) -> None:
    """For every user, whatever comes, goes or changes hands."""
    picture = FeedPicture()
    known = {user: FeedState() for user in USERS}
    parts = ("trainers", "nodes")
    for number, (trainers, nodes) in enumerate(steps):
        rows = ((id_, own, lambda id_=id_, own=own: private(own[0], {"id": id_, "step": own[1]}))
                for id_, own in trainers.items())  # fmt: skip
        facts = {
            name: holder(*own)._replace(node=Node(name=name, state=NodeState.BUSY))
            for name, own in nodes.items()
        }
        changed = FeedChange(
            trainers=picture.trainers.update(trainers, rows),
            nodes=picture.nodes.update(
                nodes, ((name, own, lambda own=own: node_line(own)) for name, own in facts.items())
            ),
            studies={},
            status=frozenset(),
            decisions=False,
        )
        picture.seq += 1
        for user, state in known.items():
            now = FeedState()
            now.take(*parsed(state_event(picture, user, "", parts)))
            told = change_event(picture, changed, user, "", parts) if number else b""
            if number == 0:
                state.take(*parsed(state_event(picture, user, "", parts)))
            elif told:
                state.take(*parsed(told))
            assert state.rows == now.rows
            own = {id_: {"id": id_, "step": step} for id_, (owner, step) in trainers.items()
                   if user in (None, owner)}  # fmt: skip
            assert now.rows["trainers"] == own, "as who may see what says"
            for name, row in now.rows["nodes"].items():
                owner, trainer = nodes[name]
                may = owner and user in (None, owner)
                assert (row["user"], row["trainer"]) == ((owner, trainer) if may else (None, None))
                assert row["role"] == ("member" if owner else None)


def test_a_row_is_made_anew_only_when_its_facts_differ() -> None:
    board, made = FeedRows[int](), list[int]()

    def row(key: int, facts: object) -> Any:
        return key, facts, lambda: (made.append(key), private("alice", {"id": key}))[1]

    board.update({1, 2}, [row(1, "a"), row(2, "a")])
    assert board.update({1, 2}, [row(1, "a"), row(2, "b")]) == {}, "it looks as before"
    assert made == [1, 2, 2]
    assert [*board.update({2}, [])] == [1]


def test_why_a_node_is_kept_is_told_in_detail_to_admins_only() -> None:
    facts = holder("", "")._replace(why="its pilots were refused", details="no pilot: bob keeps it")
    line = node_line(facts)
    assert b"bob" in (line.told(None) or b"")
    assert b"bob" not in (line.told("alice") or b"") + (line.told("") or b"")


@given(st.binary(min_size=1, max_size=9), st.lists(st.integers(1, 40)))
def test_events_are_read_however_they_are_cut(noise: bytes, cuts: list[int]) -> None:
    texts = [event("state", json.dumps({"n": n, "x": noise.hex()}).encode()) for n in range(3)]
    data, parser, found = b": beat\n\n".join(texts), EventParser(), []
    for cut in [*cuts, len(data)]:
        found += list(parser.take(data[:cut]))
        data = data[cut:]
    assert [told["n"] for _, told in found] == [0, 1, 2]


def test_what_waits_for_a_reader_is_bounded_and_then_it_begins_again() -> None:
    async def story() -> None:
        reader = FeedReader(ALICE, PARTS)
        reader.put(b"s" * 5_000_000)  # a state counts to the answers under way
        piece = b"c" * (stream.QUEUE_BYTES // 4)
        for _ in range(4):
            reader.put(piece)
        assert not reader.ended
        assert await reader.next() == b"s" * 5_000_000
        assert await reader.next() == piece
        reader.put(piece)
        reader.put(piece)
        assert reader.ended == SLOW and await reader.next() is None
        reader.put(piece)
        assert reader._size <= stream.QUEUE_BYTES and not reader._waiting

    asyncio.run(story())


# --- a daemon ------------------------------------------------------------------------------------


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    """Alice's trainer has n1, bob's waits."""
    own = settings_in(tmp_path)
    store = SqlStore(own.database)
    trainers = []
    for user, nodes in (("alice", ("n1",)), ("bob", ())):
        spec = replace(SPEC, name=f"<b>{user}'s", user=user)
        id_ = store.submit(spec, 1.0)
        trainers.append(Trainer(id=id_, spec=spec, submitted_at=1.0, nodes=frozenset(nodes), members=nodes))
    made = Daemon(own, MemoryScheduler(Machine({"n1"}), lambda: 1.0), store)
    made.runner.state = restore(replace(own.engine, max_parallel=1), frozenset({"n1"}), trainers)
    made.nodes.state.seen = (
        Node(name="n1", state=NodeState.IDLE),
        Node(name="n2", state=NodeState.BUSY, why="allocated", until=5.0, job="7", ends=99.0),
    )
    made.load_index()
    yield made
    made.lanes.close()
    store.close()


async def told(reader: FeedReader) -> tuple[str, dict[str, Any]]:
    """What a reader is told next."""
    text = b""
    while not text.endswith(b"\n\n"):  # a state may come in two parts
        found = await asyncio.wait_for(reader.next(), 20)
        text += found if found != b": beat\n\n" else b""  # type: ignore[operator]
    return parsed(text)


def test_each_reader_is_told_what_its_user_may_know_and_what_changes(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        feed = daemon.feed
        readers = {caller.user: feed.join(caller, PARTS) for caller in (ADMIN, ALICE, BOB)}
        states = {user: await told(reader) for user, reader in readers.items()}
        assert {name for name, _ in states.values()} == {"state"}
        seen = {user: [t["name"] for t in data["trainers"]] for user, (_, data) in states.items()}
        assert seen == {"root": ["<b>alice's", "<b>bob's"], "alice": ["<b>alice's"], "bob": ["<b>bob's"]}
        nodes = {user: {n["node"]: n for n in data["nodes"]} for user, (_, data) in states.items()}
        assert [nodes[user]["n1"]["trainer"] for user in readers] == ["<b>alice's", "<b>alice's", None]
        assert nodes["bob"]["n1"]["role"] == "member" and nodes["bob"]["n2"]["why"] == "allocated"
        assert (nodes["bob"]["n2"]["job"], nodes["bob"]["n2"]["until"]) == ("7", 99.0), "as the queue has it"
        assert states["bob"][1]["status"]["trainers"] == {"waiting": 1}
        assert "settings" not in states["root"][1]["status"]

        state = daemon.runner.state
        first = state.active[1]
        daemon.runner.state = replace(state, active={**state.active, 1: replace(first, nodes=frozenset())})
        name, data = await told(readers["alice"])
        assert (name, data["seq"]) == ("change", states["alice"][1]["seq"] + 1)
        assert [t["nodes"] for t in data["trainers"]] == [[]] and [n["node"] for n in data["nodes"]] == ["n1"]
        name, data = await told(readers["bob"])
        assert "trainers" not in data or [t["name"] for t in data["trainers"]] == ["<b>bob's"]
        monkeypatch.setattr("bftrainer.daemon.answers.feed.KEPT_S", 0.01)
        for reader in readers.values():
            feed.leave(reader)
        await asyncio.wait_for(feed._task, 20)  # type: ignore[arg-type]
        assert not feed._picture.trainers.lines, "nothing is kept for nobody"

    asyncio.run(story())


def test_a_reader_that_comes_back_finds_the_picture(daemon: Daemon) -> None:
    async def story() -> None:
        feed = daemon.feed
        first = feed.join(ADMIN, PARTS)
        _, before = await told(first)
        lines = feed._picture.trainers.lines[1]
        feed.leave(first)
        await asyncio.sleep(0)
        again = feed.join(ADMIN, PARTS)
        name, after = await told(again)
        assert name == "state" and after["trainers"] == before["trainers"]
        assert feed._picture.trainers.lines[1] is lines, "its rows were not made anew"
        feed.leave(again)

    asyncio.run(story())


def test_streams_of_one_user_and_of_all_are_bounded(daemon: Daemon) -> None:
    async def story() -> None:
        readers = [daemon.feed.join(ALICE, PARTS) for _ in range(READERS_OF_USER)]
        with pytest.raises(BusyError, match="16 streams of yours") as refused:
            daemon.feed.join(ALICE, PARTS)
        assert refused.value.status == 429
        for number in range(READERS - READERS_OF_USER):
            readers.append(daemon.feed.join(Caller(f"u{number // 9}", number), PARTS))
        with pytest.raises(BusyError, match="128 streams are open") as full:
            while True:
                daemon.feed.join(BOB, PARTS)
                (gone,) = (reader for reader in daemon.feed._readers if reader.ended)
                assert gone.ended == SHARED
                daemon.feed.leave(gone)  # as its connection does
        assert full.value.status == 503
        has = Counter(reader.caller.user for reader in daemon.feed._readers)
        assert has.total() == READERS and max(has.values()) - has[BOB.user] == 1, "in equal shares"
        with pytest.raises(BusyError, match="128 streams are open"):
            daemon.feed.join(ALICE, PARTS)
        for reader in list(daemon.feed._readers):
            daemon.feed.leave(reader)

    asyncio.run(story())


def test_a_client_follows_over_the_socket_and_begins_again_when_told(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        socket = daemon.settings.current.socket
        async with serving(users_application(daemon.service, Callers(), max_request=10_000), socket):

            def follow() -> list[int]:
                found, states = [], followed(Client(socket), "trainers", "nodes")
                for state in states:
                    found.append(len(state.rows["trainers"]))
                    if len(found) == 2:
                        break
                    loop.call_soon_threadsafe(daemon.feed.begin_again)  # as when settings are read anew
                states.close()  # type: ignore[attr-defined]
                return found

            loop = asyncio.get_running_loop()
            assert await asyncio.wait_for(asyncio.to_thread(follow), 60) == [2, 2]

            def refused() -> None:
                next(followed(Client(socket), "secrets"))

            with pytest.raises(DaemonError, match="choose of status, decisions"):
                await asyncio.to_thread(refused)
            connector = aiohttp.UnixConnector(path=str(socket))
            async with (
                aiohttp.ClientSession(connector=connector) as http,
                http.get("http://x/v1/feed?parts=decisions") as answer,
            ):
                assert answer.content_type == "text/event-stream"
                first = await answer.content.readuntil(b"\n\n")
                assert parsed(first)[1].keys() == {"seq", "time", "decisions"}
            async with asyncio.timeout(20):
                while daemon.feed._readers:  # who goes is forgotten
                    await asyncio.sleep(0.01)

    asyncio.run(story())


def test_a_failure_in_the_feed_tells_its_readers_to_begin_again(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        def fail(*_: object) -> None:
            raise KeyError("a bug")

        monkeypatch.setattr(type(daemon.trainers), "view_now", fail)
        reader = daemon.feed.join(ADMIN, PARTS)
        begun = await asyncio.wait_for(reader.next(), 20)
        assert b'"node": "n1"' in (begun or b""), "nodes come before trainers are looked at"
        assert await asyncio.wait_for(reader.next(), 20) is None
        assert reader.ended and "the feed" in str(daemon.telemetry.troubles.texts(details=True))
        socket = daemon.settings.current.socket
        connector = aiohttp.UnixConnector(path=str(socket))
        async with (
            serving(users_application(daemon.service, Callers(), max_request=10_000), socket),
            aiohttp.ClientSession(connector=connector) as http,
            http.get("http://x/v1/feed") as answer,
        ):
            got = bytearray()
            with pytest.raises(aiohttp.ClientError):  # nothing else is told within a state
                while True:
                    got += await asyncio.wait_for(answer.content.readany(), 20)
            assert b"event: state" in got and b"\n\n" not in got
        monkeypatch.undo()
        daemon.feed.leave(reader)
        assert (await told(daemon.feed.join(ADMIN, PARTS)))[0] == "state"
        for other in list(daemon.feed._readers):
            daemon.feed.leave(other)

    asyncio.run(story())
