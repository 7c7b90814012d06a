"""What the daemon answers and deletes where many trainers have ended: lists are bounded and say so."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest
from click.testing import CliRunner

from bftrainer.api.callers import NOBODY, Caller, Callers
from bftrainer.api.client import Client, DaemonError
from bftrainer.api.errors import UnknownTrainerError
from bftrainer.api.listing import LEFT_OUT
from bftrainer.api.routes import users_application
from bftrainer.cli.list_command import command as list_command
from bftrainer.daemon.daemon import Daemon
from bftrainer.daemon.listeners import REQUEST_KB
from bftrainer.daemon.storage import pruning
from bftrainer.daemon.storage.pruning import DAY_S, Pruning, keep_runs
from bftrainer.engine.restore import restore
from bftrainer.errors import BftrainerError
from bftrainer.model.events import NodesChanged
from bftrainer.model.trainer import Trainer, TrainerSpec
from bftrainer.store.sql import SqlStore
from bftrainer.testing.memory import Machine, MemoryScheduler
from bftrainer.testing.store import PROGRESS, end
from tests.support.nodes_world import settings_in
from tests.support.serving import serving

MAX_REQUEST = REQUEST_KB * 1000

SPEC = TrainerSpec(name="t", command=("python", "train.py"), n_min=1, n_max=2, samples=100)
ENDED, UNFINISHED = 7, 3
NOW = 100 * DAY_S
ADMIN = Caller("root", 0, admin=True)
Answer = TypeVar("Answer")


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    """Seven trainers have ended, the first of them last; one of the others trains. Bob has every second."""
    own = settings_in(tmp_path)
    store = SqlStore(own.database)
    waiting = []
    for n in range(1, ENDED + UNFINISHED + 1):
        spec = replace(SPEC, name=f"t{n}", user=("alice", "bob")[n % 2])
        id_ = store.submit(spec, float(n))
        if n <= ENDED:
            end(store, id_, NOW - n)
        else:
            nodes = ("n1",) if n == ENDED + 1 else ()
            trainer = Trainer(id=id_, spec=spec, submitted_at=float(n), nodes=frozenset(nodes), members=nodes)
            waiting.append(trainer)
    made = Daemon(own, MemoryScheduler(Machine({"n1"}), lambda: NOW), store)
    made.runner.state = restore(replace(own.engine, max_parallel=1), frozenset({"n1"}), waiting)
    made.load_index()
    yield made
    made.lanes.close()
    store.close()


def served(daemon: Daemon, ask: Callable[[Client], Answer]) -> Answer:
    """What a client is told over the daemon's socket."""

    async def scenario() -> Answer:
        socket = daemon.settings.current.socket
        async with serving(users_application(daemon.service, Callers(), max_request=MAX_REQUEST), socket):
            return await asyncio.to_thread(ask, Client(socket))

    return asyncio.run(scenario())


def listed(
    daemon: Daemon, caller: Caller, ended: int, skip: int = 0, after: int = 0
) -> tuple[list[int], int]:
    found = asyncio.run(daemon.service.trainers(caller, ended, skip, after))
    return [t["id"] for t in json.loads(found.body)], int(found.headers[LEFT_OUT])


def test_a_list_has_all_that_are_unfinished_and_those_that_ended_last(daemon: Daemon) -> None:
    assert listed(daemon, ADMIN, 100) == ([*range(1, 11)], 0)
    assert listed(daemon, ADMIN, 2) == ([1, 2, 8, 9, 10], 5)
    assert listed(daemon, ADMIN, 0) == ([8, 9, 10], 7)
    assert listed(daemon, ADMIN, 3, 2) == ([3, 4, 5], 2), "a later page has none that are unfinished"
    assert listed(daemon, Caller("bob", 1), 1) == ([1, 9], 3)
    assert listed(daemon, Caller("alice", 2), 100) == ([2, 4, 6, 8, 10], 0)
    assert listed(daemon, NOBODY, 100) == ([], 0)


def test_what_is_left_out_is_said_over_http(daemon: Daemon) -> None:
    assert [t["id"] for t in served(daemon, lambda client: client.call("GET", "trainers", limit=1))] == [
        1,
        8,
        9,
        10,
    ]
    found = served(daemon, lambda client: client.trainers(4))
    assert ([t["id"] for t in found.trainers], found.ended_left_out) == ([1, 2, 3, 4, 8, 9, 10], 3)
    for query in ({"limit": 1001}, {"limit": -1}, {"skip": "x"}, {"skip": "²"}):
        with pytest.raises(DaemonError, match="give a whole number from 0 to"):
            served(daemon, lambda client, query=query: client.call("GET", "trainers", **query))


def test_all_are_listed_page_by_page(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bftrainer.api.client.MAX_ENDED", 3)
    found = served(daemon, lambda client: client.trainers(0, every=True))
    assert ([t["id"] for t in found.trainers], found.ended_left_out) == ([*range(1, 11)], 0)
    found = served(daemon, lambda client: client.trainers(4))
    assert ([t["id"] for t in found.trainers], found.ended_left_out) == ([1, 2, 3, 4, 8, 9, 10], 3)


def test_the_command_says_how_many_it_leaves_out(daemon: Daemon) -> None:
    folder = str(daemon.settings.current.state_dir)

    def told(*words: str) -> tuple[str, str]:
        run = CliRunner()
        done = served(daemon, lambda _: run.invoke(list_command, [*words, "--state-dir", folder]))
        assert done.exit_code == 0, done.output
        return done.stdout, done.stderr

    assert "5 more have ended; --all lists them" in told("-n", "2")[0].splitlines()[-1]
    assert "more have ended" not in told()[0] + told("--all")[0]
    out, err = told("--json", "--limit", "0")
    assert [t["id"] for t in json.loads(out)] == [8, 9, 10]
    assert err.startswith("7 more have ended")


def test_status_and_metrics_count_everything(daemon: Daemon) -> None:
    status = daemon.service.status(ADMIN)
    assert status["trainers"] == {"waiting": 2, "running": 1, "completed": 7}
    assert [t["name"] for t in status["running"]] == ["t8"]
    assert daemon.service.status(Caller("bob", 1))["trainers"] == {"waiting": 1, "completed": 4}
    text = asyncio.run(daemon.service.metrics(NOBODY)).body.decode()
    assert 'bftrainer_trainers{status="completed"} 7.0' in text
    assert 'bftrainer_trainers{status="waiting"} 2.0' in text
    assert 'trainer="t8"' not in text
    text = asyncio.run(daemon.service.metrics(Caller("alice", 2))).body.decode()
    assert 'trainer="t8"' in text and 'trainer="t9"' not in text


def test_one_is_found_by_number_and_by_name(daemon: Daemon) -> None:
    store = SqlStore(daemon.settings.current.database)
    for name in ("4", "t3", "9" * 30):  # names may look like numbers
        store.submit(replace(SPEC, name=name, user="alice"), 20.0)
    store.close()

    def found(word: str, caller: Caller = ADMIN) -> int:
        return asyncio.run(daemon.service.show(caller, word))["id"]

    assert (found("5"), found("t8"), found("9" * 30)) == (5, 8, 13)
    assert found("4") == 11, "the latest of those that are meant: number 4 is alice's, too"
    assert found("t3", Caller("bob", 1)) == 3 and found("t3", Caller("alice", 2)) == 12
    with pytest.raises(BftrainerError, match=r"Name it by its number: 3 \(bob\), 12 \(alice\)"):
        found("t3")
    for word in ("77", "-1", "t77", "²", "5"):
        with pytest.raises(UnknownTrainerError):
            found(word, Caller("alice", 2))


def test_a_trainer_that_lost_its_nodes_over_a_restart_waits(daemon: Daemon) -> None:
    """The store says that it runs until the engine decides something new."""
    store = daemon.service.store
    (waits,) = [t for t in store.unfinished() if t.id == 9]
    store.record(
        NodesChanged(time=NOW), [replace(waits.engine, nodes=frozenset({"n1"}))], None, [], None, frozenset()
    )
    assert [t.status for t in store.unfinished_summaries() if t.id == 9] == ["starting"]
    daemon.load_index()
    found = asyncio.run(daemon.service.trainers(ADMIN, 0, 0, 0))
    (view,) = [t for t in json.loads(found.body) if t["id"] == 9]
    assert (view["status"], view["nodes"]) == ("waiting", [])


# --- what is old is deleted ----------------------------------------------------------------------


def pruner(daemon: Daemon, runs_s: float = pruning.SURE_S, behind_s: float = 0.0, **settings: Any) -> Pruning:
    """That of a daemon which has run for so long, on a machine whose clock differs by so much."""
    own = daemon.settings.current
    daemon.settings.reload(own.model_copy(update=settings))
    times = itertools.chain([NOW - runs_s], itertools.repeat(NOW))
    clock = SimpleNamespace(now=lambda: next(times), behind_s=lambda: behind_s)
    return Pruning(daemon.service.store, daemon.settings, clock, daemon.telemetry)


def test_events_older_than_the_setting_are_deleted_step_by_step(daemon: Daemon) -> None:
    store = daemon.service.store
    store.progress([replace(PROGRESS, time=NOW - days * DAY_S) for days in (40, 31, 29, 0)])
    assert pruner(daemon, keep_events_days=None).step() == pruning.CHECK_S
    assert pruner(daemon, keep_events_days=30.0).step() == pruning.PAUSE_S, "there may be more"
    assert pruner(daemon, keep_events_days=30.0).step() == pruning.CHECK_S
    assert [row["time"] for row in store.rows("reports", None)] == [NOW - 29 * DAY_S, NOW]
    assert len(store.rows("events", None)) == ENDED


@pytest.mark.parametrize("doubt", [{"runs_s": 599.0}, {"behind_s": 61.0}, {"behind_s": -61.0}])
def test_nothing_is_old_by_a_clock_that_may_be_wrong(daemon: Daemon, doubt: dict[str, float]) -> None:
    store = daemon.service.store
    store.progress([replace(PROGRESS, time=NOW - 40 * DAY_S)])
    assert pruner(daemon, **doubt, keep_events_days=30.0).step() == pruning.CHECK_S
    assert len(store.rows("reports", None)) == 1


def test_runs_are_kept_as_long_as_their_events(tmp_path: Path) -> None:
    own = settings_in(tmp_path, keep_events_days=30)
    never = own.model_copy(update={"keep_events_days": None})
    runs = [{"begin": NOW - days * DAY_S} for days in (90, 50, 31, 20, 1)]
    assert keep_runs(json.dumps(runs), own, NOW) == runs[2:], (
        "the last one that began before the oldest event"
    )
    assert keep_runs(json.dumps(runs[3:]), own, NOW) == runs[3:]
    assert keep_runs("[]", own, NOW) == []
    assert keep_runs(json.dumps(runs), never, NOW) == runs
    assert len(keep_runs(json.dumps(runs * 1000), never, NOW)) == pruning.MOST_RUNS


@pytest.mark.parametrize(
    "text", ["", "[", "7", '{"begin": 1}', "[7]", "[{}]", '[{"begin": "x"}]', "[" * 9999]
)
def test_runs_that_are_damaged_stop_no_daemon(tmp_path: Path, text: str) -> None:
    assert keep_runs(text, settings_in(tmp_path), NOW) == []
