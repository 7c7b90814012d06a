"""Another process locks the database: the loop goes on turning, decisions are acted on, nothing is lost."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bftrainer.daemon.storage import journal as journal_
from bftrainer.errors import StoreError
from bftrainer.model.events import NodesChanged, TrainerSubmitted
from bftrainer.model.trainer import TrainerSpec
from bftrainer.search.trial import StudyFile
from tests.support.fed_daemon import FedDaemon
from tests.support.nodes_world import run
from tests.support.studies import TEXT, spec_of
from tests.support.waiting import until_true

SPEC = TrainerSpec(name="t", command=("true",), n_min=1, n_max=8, curve=((1, 10.0), (8, 80.0)))


class Stage(FedDaemon):
    """The daemon, and another process's connection to its database."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.other = sqlite3.connect(self.own.database, isolation_level=None)

    async def change(self, node: str) -> float:
        """A node joins. Returns how long it took until the decision was acted on."""
        began = time.monotonic()
        joined = frozenset({node})
        await self.daemon.runner.take(NodesChanged(time=time.time(), joined=joined))
        return time.monotonic() - began

    async def all_stored(self) -> None:
        await until_true(lambda: self.daemon.journal._writer.standing().behind_since is None)
        assert not self.problems()

    def problems(self) -> str:
        self.daemon.journal.look()
        return "; ".join(self.daemon.telemetry.troubles.texts(details=True))


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path)
    yield made
    made.other.close()
    made.close()


async def turns(longest: list[float]) -> None:
    """Measure how long the loop's turns are."""
    while True:
        began = time.monotonic()
        await asyncio.sleep(0.002)
        longest[0] = max(longest[0], time.monotonic() - began)


def test_decisions_are_acted_on_while_the_database_is_locked_and_stored_in_order(stage: Stage) -> None:
    async def scenario() -> None:
        now = time.time()
        id_ = await stage.daemon.journal.submit(SPEC, now)
        await stage.daemon.runner.take(TrainerSubmitted(time=now, trainer=id_, spec=SPEC))
        longest = [0.0]
        measured = asyncio.create_task(turns(longest))
        stage.other.execute("BEGIN EXCLUSIVE")
        took = [await stage.change(f"n{i}") for i in range(8)]
        assert len(stage.acts.actions) == 8, "each node got a worker"
        assert sum(took) < 3, "one decision waited for a moment, and none for the lock"
        await until_true(lambda: "database is locked" in stage.problems())
        assert longest[0] < 1.0, "the lock is waited for elsewhere"
        stage.other.execute("COMMIT")
        await stage.all_stored()
        measured.cancel()
        joined = [row["data"].get("joined") for row in stage.store.rows("events", None)]
        assert joined[1:] == [[f"n{i}"] for i in range(8)]
        actions = [a for row in stage.store.rows("events", None) for a in row["actions"]]
        assert len(actions) == 8 and all(a["performed_at"] for a in actions)
        (stored,) = stage.store.unfinished()
        assert stored.engine.nodes == frozenset(f"n{i}" for i in range(8))

    run(scenario)


def test_a_submission_meanwhile_is_refused_and_leaves_nothing(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_, "ANSWER_S", 0.2)

    async def scenario() -> None:
        stage.other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StoreError, match="nothing was submitted, try again"):
            await stage.daemon.journal.submit(SPEC, 1.0)
        stage.other.execute("COMMIT")
        await stage.all_stored()
        assert stage.store.unfinished() == []
        assert await stage.daemon.journal.submit(SPEC, 1.0)

    run(scenario)


def test_no_study_begins_meanwhile(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """What its trials are would wait for the store in memory, study after study."""
    monkeypatch.setattr(journal_, "ANSWER_S", 0.2)

    async def scenario() -> None:
        studies, source = stage.daemon.studies, StudyFile(text=json.dumps(TEXT), file="s.yaml", base="/")
        stage.other.execute("BEGIN EXCLUSIVE")
        await stage.change("n1")
        await until_true(lambda: stage.daemon.journal._stuck_s() > 0.2)
        with pytest.raises(StoreError, match="nothing was submitted, try again"):
            await studies.submit("ann", spec_of(), source)
        assert not studies.thread.snapshots
        stage.other.execute("COMMIT")
        await stage.all_stored()
        assert (await studies.submit("ann", spec_of(), source)).user == "ann"

    run(scenario)


def test_look_ups_that_hang_do_not_keep_the_engine_waiting(stage: Stage) -> None:
    async def scenario() -> None:
        hang = asyncio.Event()
        loop = asyncio.get_running_loop()

        def look_up() -> None:
            asyncio.run_coroutine_threadsafe(hang.wait(), loop).result()

        hanging = [asyncio.create_task(asyncio.to_thread(look_up)) for _ in range(100)]
        await stage.change("n1")
        hang.set()
        await asyncio.wait(hanging)

    run(scenario)
