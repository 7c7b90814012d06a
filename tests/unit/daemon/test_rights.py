"""Every route, for every kind of caller: their own trainers, and nothing of others'."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import openapi_page
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from bftrainer.api.callers import NOBODY, Caller, NotAllowedError, UnauthenticatedError
from bftrainer.api.routes import metrics_application, users_application
from bftrainer.daemon.daemon import Daemon
from bftrainer.daemon.listeners import REQUEST_KB
from bftrainer.engine.restore import restore
from bftrainer.errors import SchedulerError
from bftrainer.messages.commands.daemon import UNKNOWN
from bftrainer.model.actions import StartWorker
from bftrainer.model.events import Measured, NodesChanged, TrainerCancelled
from bftrainer.model.machine import Node, NodeState, Operation, Pilot
from bftrainer.model.main_jobs import Accounted
from bftrainer.model.problem import Plan, PlanStatus
from bftrainer.model.reports import Pause, Progress
from bftrainer.model.trainer import Cost, Trainer, TrainerSpec
from bftrainer.performance.estimate import with_measurement
from bftrainer.settings.sources import load
from bftrainer.store.sql import SqlStore

MAX_REQUEST = REQUEST_KB * 1000

CALLERS = {
    "alice": Caller("alice", 1001),
    "bob": Caller("bob", 1002),
    "carol": Caller("carol", 1003),
    "ops": Caller("ops", 1004, admin=True),
    "root": Caller("root", 0, admin=True),
    "service": Caller("service", os.geteuid(), admin=True),
}
SPEC = "name: {name}\ncommand: [python, train.py]\nnodes: {{max: 2}}\n"
ALICES, BOBS, BOBS_SECRET = 1, 2, 3


class FakeCallers:
    """Believes what a header says."""

    async def of(self, request: web.Request) -> Caller:
        name = request.headers.get("X-Caller")
        if name is None:
            raise UnauthenticatedError("who are you?")
        if name not in CALLERS:
            raise NotAllowedError(f"not {name}")
        return CALLERS[name]


class NoScheduler:
    """Asked for nothing but what it does not know."""

    async def accounted(self, since: float) -> Accounted:
        raise SchedulerError("there is none")


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    """Alice and Bob train on a node each, and have said so; Bob has another trainer that waits."""
    own = load(
        {
            "state_dir": tmp_path / "state",
            "socket": tmp_path / "daemon.sock",
            "mode": "site",
            "exec_prefix": ["sudo", "-n", "-u", "{user}", "--"],
            "keep_events_days": "never",  # these are of 1970
        },
        environ={"XDG_CONFIG_HOME": str(tmp_path)},
    )
    store = SqlStore(own.database)
    daemon = Daemon(own, NoScheduler(), store)  # type: ignore[arg-type]
    trainers = []
    for user, name, nodes in (("alice", "digits", "n1"), ("bob", "digits", "n2"), ("bob", "secret", "")):
        spec = TrainerSpec(
            name=name, command=("python", "train.py"), n_min=1, n_max=2, user=user, workdir=f"/home/{user}"
        )
        id_ = store.submit(spec, 1.0)
        daemon.launcher.add(id_, spec)
        members = tuple(nodes.split())
        trainer = Trainer(id=id_, spec=spec, submitted_at=1.0, nodes=frozenset(members), members=members)
        trainers.append(trainer)
        progress = Progress(
            time=2.0,
            trainer=id_,
            generation=1,
            size=1,
            step=id_,
            samples=10 * id_,
            epoch=0,
            rate=1.0,
            metrics={f"loss_of_{user}": 0.5},
        )
        daemon.journal.begin(id_)
        daemon.journal.progressed(progress)
        store.progress([progress])
        store.pause(
            Pause(
                time=2.0,
                trainer=id_,
                generation=1,
                node="n1",
                kind="join",
                size=1,
                step=1,
                pause_s=0.1,
                lost_steps=0,
            )
        )
    daemon.runner.state = restore(own.engine, frozenset({"n1", "n2", "n3"}), trainers)
    facts = {"partitions": ("batch", "backfill"), "features": ("fast",), "gres": "gpu:2", "gpus": 2}
    daemon.nodes.state.seen = tuple(
        Node(name=name, state=NodeState.IDLE, **facts)  # type: ignore[arg-type]
        for name in ("n1", "n2", "n3", "n4")
    )
    daemon.runner.last_plan = plan = Plan(
        allocator="knapsack",
        status=PlanStatus.OPTIMAL,
        counts={t.id: len(t.nodes) for t in trainers},
        objective=1.0,
        bound=1.0,
        allocation={t.id: t.nodes for t in trainers},
    )
    actions = [StartWorker(trainer=t.id, generation=1, node=n) for t in trainers for n in t.members]
    change = NodesChanged(time=2.0, joined=frozenset({"n1", "n2"}))
    store.record(change, trainers, plan, actions, None, frozenset({"n1", "n2"}))
    for id_ in (ALICES, BOBS, BOBS_SECRET):
        store.record(TrainerCancelled(time=3.0, trainer=id_), [], None, [], None, frozenset())
    daemon.load_index()
    yield daemon
    daemon.lanes.close()
    store.close()


Asked = Callable[..., tuple[int, Any]]


@pytest.fixture
def ask(daemon: Daemon) -> Asked:
    """`ask(who, method, path, body=...)` gives the status and the JSON (or text) of the answer."""

    async def request(who: str | None, method: str, path: str, **how: Any) -> tuple[int, Any]:
        app = users_application(daemon.service, FakeCallers(), max_request=MAX_REQUEST)  # type: ignore[arg-type]
        async with TestClient(TestServer(app)) as client:
            headers = ({} if who is None else {"X-Caller": who}) | how.pop("headers", {})
            answer = await client.request(method, path, headers=headers, **how)
            text = await answer.text()
            return answer.status, json.loads(text) if "json" in answer.content_type else text

    return lambda *what, **how: asyncio.run(request(*what, **how))


READ = ("trainers", "pool", "events", "pauses", "reports", "status")
EVERY_ROUTE = (
    *(("GET", f"/v1/{what}") for what in READ),
    ("GET", "/v1/trainers/digits"),
    ("DELETE", "/v1/trainers/digits"),
    ("POST", "/v1/trainers"),
    ("POST", "/v1/admin/pause"),
    ("GET", "/v1/admin/impact"),
)


@pytest.mark.parametrize(("method", "path"), EVERY_ROUTE)
def test_who_is_not_known_is_told_nothing(ask: Asked, method: str, path: str) -> None:
    assert ask(None, method, path) == (401, {"error": "who are you? (bftrainer explain BFT-449)"})
    assert ask("mallory", method, path) == (403, {"error": "not mallory (bftrainer explain BFT-448)"})


def test_what_is_typical_of_others_trainers_is_not_shown(daemon: Daemon, ask: Asked) -> None:
    before = ask("alice", "GET", "/v1/trainers/digits")[1]
    state, event = daemon.runner.state, Measured(time=3.0, trainer=BOBS, generation=0, point=(1, 777.0))
    event = replace(event, up=Cost(stall_s=55.0, init_s=66.0), down=Cost(stall_s=44.0))
    bobs, programs = with_measurement(state.active[BOBS], state.programs, event, "")
    daemon.runner.state = replace(state, programs=programs, active={**state.active, BOBS: bobs})
    after = ask("alice", "GET", "/v1/trainers/digits")[1]
    assert (after["scalability"], after["costs"]) == (before["scalability"], before["costs"])
    assert ask("bob", "GET", "/v1/trainers/secret")[1]["costs"]["up"]["stall"]["seconds"] == 55.0


def test_users_see_their_own_trainers_and_admins_all(ask: Asked) -> None:
    def seen(who: str) -> list[int]:
        return [t["id"] for t in ask(who, "GET", "/v1/trainers")[1]]

    assert seen("alice") == [ALICES]
    assert seen("bob") == [BOBS, BOBS_SECRET]
    assert seen("carol") == []
    assert seen("ops") == seen("root") == [ALICES, BOBS, BOBS_SECRET]


@pytest.mark.parametrize("path", [f"/v1/{what}" for what in READ] + ["/metrics"])
def test_nothing_of_bobs_shows_to_others(ask: Asked, path: str) -> None:
    for who in ("alice", "carol"):
        said = json.dumps(ask(who, "GET", path)[1])
        assert "bob" not in said and "secret" not in said
    assert "loss_of_bob" in json.dumps(ask("bob", "GET", "/metrics")[1])
    assert "loss_of_bob" in json.dumps(ask("ops", "GET", "/metrics")[1])
    assert "digits" not in ask(None, "GET", "/metrics")[1]


@pytest.mark.parametrize("what", ["events", "pauses", "reports"])
def test_rows_are_of_own_trainers(ask: Asked, what: str) -> None:
    def of(who: str, query: str = "") -> set[int]:
        rows = ask(who, "GET", f"/v1/{what}{query}")[1]
        actions = [a["trainer"] for row in rows for a in row.get("actions", ())]
        return {row["trainer"] for row in rows if row["trainer"]} | set(actions)

    assert of("alice") == {ALICES}
    assert of("bob") == of("bob", "?limit=1000") == {BOBS, BOBS_SECRET}
    assert of("carol") == set()
    assert of("ops") == {ALICES, BOBS, BOBS_SECRET}
    assert of("bob", "?trainer=digits") == {BOBS}
    assert ask("alice", "GET", f"/v1/{what}?trainer=secret")[0] == 404


def test_everybody_sees_the_nodes_and_not_whose_they_are(ask: Asked) -> None:
    rows = ask("alice", "GET", "/v1/pool")[1]["nodes"]
    nodes = {n["node"]: (n["trainer"], n["role"]) for n in rows}
    assert nodes == {
        "n1": ("digits", "member"),
        "n2": (None, "member"),
        "n3": (None, None),
        "n4": (None, None),
    }
    assert {tuple(row["partitions"]) for row in rows} == {("batch", "backfill")}
    assert {(*row["features"], row["gres"], row["gpus"]) for row in rows} == {("fast", "gpu:2", 2)}
    status = ask("carol", "GET", "/v1/status")[1]
    assert (status["pool"], status["unused"], status["trainers"], status["settings"]) == (3, 1, {}, {})
    assert ask("ops", "GET", "/v1/status")[1]["settings"]["mode"] == "site"


def test_why_a_pilot_was_refused_is_for_admins(ask: Asked, daemon: Daemon) -> None:
    daemon.pilots.works("sudo: unknown user bob")
    assert ask("alice", "GET", "/v1/status")[1]["problems"] == [
        "no pilot can be submitted (bftrainer explain BFT-279)"
    ]
    assert "no pilot can be submitted" in ask(None, "GET", "/readyz")[1]["reasons"]
    assert "bob" in ask("ops", "GET", "/v1/status")[1]["problems"][0]


def test_a_plan_that_was_not_made_as_asked_is_everybodys_to_know(ask: Asked, daemon: Daemon) -> None:
    def decide(plan: Plan) -> None:
        daemon.runner.last_plan = plan
        daemon.telemetry.took(NodesChanged(time=4.0), plan, [], None)

    assert daemon.runner.last_plan is not None
    daemon.recovery.active, asked = False, daemon.runner.last_plan
    assert ask("alice", "GET", "/v1/status")[1]["state"] == "ok"
    decide(replace(asked, fallback="no licence"))
    for who in ("alice", "ops"):
        told = ask(who, "GET", "/v1/status")[1]
        assert (told["state"], told["problems"]) == (
            "degraded",
            ["knapsack makes the plans: no licence (bftrainer explain BFT-282)"],
        )
        assert told["last_plan"]["fallback"] == "no licence"
    assert ask(None, "GET", "/readyz")[0] == 200, "it decides all the same"
    decide(asked)
    assert ask("alice", "GET", "/v1/status")[1]["problems"] == []


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_what_is_others_is_as_if_it_were_not_there(ask: Asked, method: str) -> None:
    for name in ("secret", str(BOBS), str(BOBS_SECRET), "nowhere", "77"):
        said = {"error": UNKNOWN.say(kind="trainer", name=name, command="list")}
        assert ask("alice", method, f"/v1/trainers/{name}") == (404, said)


def test_names_mean_ones_own_first(ask: Asked, daemon: Daemon) -> None:
    assert ask("alice", "GET", "/v1/trainers/digits")[1]["user"] == "alice"
    assert ask("bob", "GET", "/v1/trainers/digits")[1]["user"] == "bob"
    code, said = ask("ops", "GET", "/v1/trainers/digits")
    assert code == 400 and "Name it by its number: 1 (alice), 2 (bob)" in said["error"]
    assert ask("ops", "GET", "/v1/trainers/2")[1]["user"] == "bob"
    assert ask("ops", "GET", "/v1/trainers/secret")[1]["id"] == BOBS_SECRET


def test_users_cancel_their_own_and_admins_any(
    ask: Asked, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    cancelled: list[int] = []
    monkeypatch.setattr(daemon.orders, "cancel", cancelled.append)
    assert ask("bob", "DELETE", "/v1/trainers/digits")[0] == 200
    assert ask("ops", "DELETE", f"/v1/trainers/{ALICES}")[0] == 200
    assert ask("carol", "DELETE", "/v1/trainers/digits")[0] == 404
    assert cancelled == [BOBS, ALICES]


def test_a_trainer_belongs_to_who_submits_it(ask: Asked, tmp_path: Path) -> None:
    body = {"spec": SPEC.format(name="new"), "name": "new.yaml", "base": "/nowhere/at/all"}
    code, said = ask("carol", "POST", "/v1/trainers", json=body)
    assert code == 201, "nobody looks into users' folders"
    assert ask("carol", "GET", "/v1/trainers/new")[1]["id"] == said["id"]
    assert ask("alice", "GET", "/v1/trainers/new")[0] == 404
    code, said = ask("carol", "POST", "/v1/trainers", json=body)
    assert code == 400 and "is called 'new'" in said["error"]
    assert ask("alice", "POST", "/v1/trainers", json=body)[0] == 201, "others may have the same name"


def test_admins_alone_pause_drain_and_resume(
    ask: Asked, daemon: Daemon, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ordered: list[Operation] = []
    monkeypatch.setattr(daemon.orders, "administer", ordered.append)
    caplog.set_level("INFO", "bftrainer")
    for order in ("pause", "drain", "resume"):
        code, said = ask("alice", "POST", f"/v1/admin/{order}")
        assert code == 403 and "alice is no admin here" in said["error"]
        code, said = ask("ops", "POST", f"/v1/admin/{order}")
        assert code == 200 and said["operation"] == "running"
    assert ordered == [Operation.PAUSED, Operation.DRAINING, Operation.RUNNING]
    told = [record.fields for record in caplog.records if record.message == "ordered"]
    assert [(line["order"], line["user"], line["uid"]) for line in told] == [
        ("pause", "ops", 1004),
        ("drain", "ops", 1004),
        ("resume", "ops", 1004),
    ]
    assert ask("ops", "POST", "/v1/admin/stop")[0] == ask("ops", "GET", "/v1/admin/pause")[0] - 1 == 404


def test_admins_alone_see_what_main_jobs_waited(ask: Asked) -> None:
    code, said = ask("alice", "GET", "/v1/admin/impact")
    assert code == 403 and "alice is no admin here" in said["error"]
    code, said = ask("ops", "GET", "/v1/admin/impact?days=0.5")
    assert code == 200 and said["all"]["count"] == 0 and said["days"] == 0.5
    assert "there is none" in said["notes"][0]
    for days in ("0", "-1", "nan", "inf", "1e9", "x", "9" * 100):
        code, said = ask("ops", "GET", f"/v1/admin/impact?days={days}")
        assert code == 400 and "give a number above 0, up to 366" in said["error"]


@pytest.mark.parametrize("recovering", [True, False])
def test_an_agent_has_only_trainers_of_its_own_user(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch, recovering: bool
) -> None:
    wanted: list[set[int]] = []
    monkeypatch.setattr(daemon.launcher, "agent_up", lambda node, there, ids: wanted.append(set(ids)))
    monkeypatch.setattr(daemon.hub, "connected", lambda node: True)
    asyncio.run(daemon.recovery.load())
    daemon.recovery.active = recovering
    for user in ("alice", "bob"):
        daemon.pilots.adopt(Pilot(tag=user, node="n1", user=user))
        assert daemon.agents.up("n1", user, [])
    assert wanted == [{ALICES}, set()]


@pytest.mark.parametrize("who", ["root", "service"])
def test_nothing_is_run_as_root_or_as_the_daemon(ask: Asked, daemon: Daemon, who: str) -> None:
    body = {"spec": SPEC.format(name="new"), "name": "new.yaml", "base": "/"}
    code, said = ask(who, "POST", "/v1/trainers", json=body)
    assert code == 403 and f"trainers of {who} are not run here. Submit as yourself" in said["error"]
    daemon.settings.current = daemon.settings.current.model_copy(update={"mode": "single"})
    assert ask(who, "POST", "/v1/trainers", json=body)[0] == 201


@pytest.mark.parametrize(
    "path",
    [
        "trainers",
        "trainers/{trainer}",
        "pool",
        "{what:events|pauses|reports}",
        "status",
        "admin/impact",
    ],
)
def test_answers_have_the_shape_that_openapi_tells(ask: Asked, path: str) -> None:
    document = openapi_page.document()
    template = "/v1/" + path.replace("what:events|pauses|reports", "what")
    told = document["paths"][template]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    address = template.format(trainer=ALICES, what="pauses")
    status, answer = ask("root", "GET", address)
    assert status == 200 and answer
    assert list(_misfits(answer, told, document["components"]["schemas"])) == []


def _misfits(value: Any, told: dict[str, Any], known: dict[str, Any], at: str = "") -> Iterator[str]:
    """What of an answer is not as its schema says, nor has a key that the schema lacks."""
    told = known[told["$ref"].rpartition("/")[2]] if "$ref" in told else told
    if "anyOf" in told:
        if not any(not list(_misfits(value, part, known)) for part in told["anyOf"]):
            yield f"{at}: {value!r}"
        return
    kinds = {"integer": int, "number": (int, float), "string": str, "boolean": bool, "null": type(None)}
    kinds |= {"object": dict, "array": list}
    kind = told.get("type")
    if kind and not isinstance(value, kinds[kind]):
        yield f"{at}: {value!r}"
    elif kind == "object":
        own = told.get("properties", {})
        if missing := set(told.get("required", ())) ^ (set(value) if own else set()):
            yield f"{at}: {missing}"
        for key, part in value.items():
            yield from _misfits(
                part, own.get(key, told.get("additionalProperties", {})), known, f"{at}.{key}"
            )
    elif kind == "array":
        for n, part in enumerate(value):
            yield from _misfits(part, told["items"], known, f"{at}[{n}]")


@pytest.mark.parametrize(
    ("method", "path", "how", "code", "words"),
    [
        ("POST", "/v1/trainers", {"data": b"{"}, 400, "no JSON"),
        ("POST", "/v1/trainers", {"json": {"spec": "", "name": "a"}}, 400, "'base' must be a text"),
        *(
            (
                "POST",
                "/v1/trainers",
                {"json": {"spec": "", "name": "a", "base": "/"} | {key: "a\ud800"}},
                400,
                f"{key!r} must be a text",
            )
            for key in ("spec", "name", "base", "resume")
        ),
        ("POST", "/v1/trainers", {"json": {"spec": "", "name": "a", "base": "."}}, 400, "whole path"),
        ("POST", "/v1/trainers", {"data": b"x" * (MAX_REQUEST + 1)}, 413, "too large"),
        ("POST", "/v1/trainers", {"data": b"[" * 20_000 + b"]" * 20_000}, 400, "nested too deeply"),
        (
            "POST",
            "/v1/trainers",
            {"data": b'{"a":' * 10_000 + b"1" + b"}" * 10_000},
            400,
            "nested too deeply",
        ),
        ("POST", "/v1/trainers", {"data": b"-2.8e16"}, 400, "must be a JSON object"),
        ("POST", "/v1/trainers", {"data": b"null"}, 400, "must be a JSON object"),
        ("POST", "/v1/trainers", {"data": b"[" * 21 + b"]" * 21}, 400, "nested too deeply"),
        ("POST", "/v1/trainers", {"data": b'{"spec": %s}' % (b"1" * 5_000)}, 400, "no JSON"),
        ("POST", "/v1/trainers", {"data": b"\xff\xfe{}"}, 400, "no JSON"),
        ("POST", "/v1/trainers", {"data": b"{}", "headers": {"Content-Type": "a; charset=zip"}}, 400, "spec"),
        ("GET", "/v1/events?limit=0", {}, 400, "from 1 to"),
        ("GET", f"/v1/events?limit={'1' * 4_400}", {}, 400, "from 1 to"),
        ("GET", f"/v1/trainers?skip={'9' * 4_400}", {}, 400, "give a whole number from 0 to"),
        ("GET", "/v1/events?limit=%D9%A1", {}, 400, "from 1 to"),
        ("GET", "/v1/trainers/%ED%A0%80", {}, 404, "no trainer"),
        ("DELETE", "/v1/trainers/%00", {}, 404, "no trainer"),
        ("GET", f"/v1/trainers/{'9' * 4_400}", {}, 404, "no trainer"),
        ("GET", "/v1/events?trainer=%00%ED%A0%80%FF", {}, 404, "no trainer"),
        ("GET", "/v1/events?trainer", {}, 404, "no trainer"),
        ("GET", "/v1/nothing", {}, 404, "GET /v1/nothing: Not Found"),
        ("PUT", "/v1/status", {}, 405, "Method Not Allowed"),
    ],
)
def test_bad_requests_are_told_what_is_wrong(
    ask: Asked, method: str, path: str, how: dict[str, Any], code: int, words: str
) -> None:
    found, said = ask("alice", method, path, **how)
    assert found == code and words in said["error"]


def test_a_port_for_metrics_tells_what_its_reader_may_know(daemon: Daemon) -> None:
    async def read(caller: Caller) -> str:
        app = metrics_application(daemon.service, caller)
        async with TestClient(TestServer(app)) as client, client.get("/metrics") as answer:
            return await answer.text()

    told = asyncio.run(read(NOBODY))
    assert 'bftrainer_trainers{status="running"} 2.0' in told and "digits" not in told
    assert "loss_of_bob" in asyncio.run(read(CALLERS["ops"]))
