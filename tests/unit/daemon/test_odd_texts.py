"""Databases of earlier versions may hold texts that are refused today: no answer breaks on them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa
from aiohttp.test_utils import TestClient, TestServer
from prometheus_client.parser import text_string_to_metric_families
from yarl import URL

from bftrainer.api.callers import Caller
from bftrainer.api.routes import users_application
from bftrainer.daemon.daemon import Daemon
from bftrainer.engine.restore import restore
from bftrainer.model.events import TrainerCancelled, WorkerLost
from bftrainer.model.trainer import TrainerSpec
from bftrainer.store.sql import SqlStore
from bftrainer.testing.memory import Machine, MemoryScheduler
from bftrainer.testing.store import PROGRESS
from tests.support.nodes_world import settings_in

HALF = "\\ud800\\u001b[2J"
"""Half of a surrogate pair and an escape sequence, as JSON stores them."""
SPEC = TrainerSpec(
    name="t", command=("python", "MARK"), n_min=1, n_max=2, user="root", workdir="/MARK", env=(("A", "MARK"),)
)


class Admin:
    """Everybody is root."""

    async def of(self, request: object) -> Caller:
        return Caller("root", 0, admin=True)


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    own = settings_in(tmp_path)
    store = SqlStore(own.database)
    id_ = store.submit(SPEC, 1.0)
    store.progress([replace(PROGRESS, trainer=id_, metrics={"loss": float("nan"), "worst": float("inf")})])
    lost = WorkerLost(time=2.0, trainer=id_, node="n1", generation=1, reason="MARK")
    store.record(lost, [], None, [], None, frozenset())
    store.record(TrainerCancelled(time=3.0, trainer=id_), [], None, [], None, frozenset())
    with sa.create_engine(f"sqlite:///{own.database}").begin() as c:
        c.execute(
            sa.text("UPDATE trainers SET metrics = :m, spec = replace(spec, 'MARK', :h)"),
            {"m": f'{{"loss{HALF}": 0.5, "last": NaN, "worst": -Infinity}}', "h": HALF},
        )
        c.execute(sa.text("UPDATE events SET data = replace(data, 'MARK', :h)"), {"h": HALF})
    made = Daemon(own, MemoryScheduler(Machine({"n1"}), lambda: 0.0), store)
    (stored,) = store.unfinished()
    runs = replace(stored.engine, spec=stored.spec, nodes=frozenset({"n1"}), members=("n1",))
    made.runner.state = restore(own.engine, frozenset({"n1"}), [runs])
    made.load_index()
    yield made
    made.lanes.close()
    store.close()


@pytest.mark.parametrize(
    "path",
    ["trainers", "trainers/1", "trainers/t", "status", "pool", "events", "events?trainer=t", "reports"],
)
def test_answers_are_json_that_every_reader_takes(daemon: Daemon, path: str) -> None:
    status, body = asked(daemon, f"/v1/{path}")
    assert status == 200, body
    assert "\\ud800" not in body.decode("utf-8")
    found = json.loads(body, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    json.dumps(found, ensure_ascii=False).encode("utf-8")


def test_metrics_are_what_prometheus_reads(daemon: Daemon) -> None:
    status, body = asked(daemon, "/metrics")
    assert status == 200, body
    families = {f.name: f for f in text_string_to_metric_families(body.decode("utf-8"))}
    sample, *_ = families["bftrainer_trainer_metric"].samples
    assert sample.labels["metric"] == r"loss\ud800\x1b[2J"


@pytest.mark.parametrize("odd", ["%ED%A0%80", "%00", "%1b%5b2J", "%FF", "x" * 3000])
def test_odd_names_are_not_found(daemon: Daemon, odd: str) -> None:
    for path in (f"/v1/trainers/{odd}", f"/v1/events?trainer={odd}"):
        status, body = asked(daemon, path)
        assert status in (400, 404), (status, body)
        assert json.loads(body)["error"].isprintable()


def asked(daemon: Daemon, path: str) -> tuple[int, bytes]:
    async def ask() -> tuple[int, bytes]:
        app = users_application(daemon.service, Admin(), max_request=1000)  # type: ignore[arg-type]
        async with TestClient(TestServer(app)) as client:
            answer = await client.get(URL(path, encoded=True))
            return answer.status, await answer.read()

    return asyncio.run(ask())
