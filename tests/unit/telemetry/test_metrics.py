"""What Prometheus reads, and that documentation and dashboard speak of what there is."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from bftrainer.model.actions import Ended, StartWorker
from bftrainer.model.events import Event, Measured, NodesChanged, PollFailed
from bftrainer.model.machine import Pilot
from bftrainer.model.main_jobs import Affected, MainStart
from bftrainer.model.problem import Plan, PlanStatus
from bftrainer.model.reports import Pause
from bftrainer.model.trainer import TrainerStatus
from bftrainer.telemetry.metrics import render
from bftrainer.telemetry.telemetry import FAILURES, Telemetry

ROOT = Path(__file__).parent.parent.parent.parent


def trainer(name: str, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "user": "ann",
        "members": ["n1", "n2"],
        "samples": 10,
        "step": 2,
        "epoch": 0,
        "rate": None,
        "metrics": {"loss": 0.5, 'a "quoted" name': 1.0},
        "ended_at": None,
        **more,
    }


STATUS = {
    "pool": 5,
    "unused": 2,
    "pilots": 4,
    "headroom": {"setting": "auto", "extra": 0.1, "wanted": 1, "usable": 12, "free": 8},
    "state": "degraded",
    "up_s": 7.0,
    "trainers": {"running": 1, "completed": 1},
}


def exposed(telemetry: Telemetry) -> dict[str, Metric]:
    text = render(telemetry.metrics.registry, STATUS, [trainer("one")])
    return {family.name: family for family in text_string_to_metric_families(text.decode())}


def values(telemetry: Telemetry) -> dict[tuple[str, ...], float]:
    """(name, sorted values of labels...) -> value."""
    return {
        (s.name, *sorted(s.labels.values())): s.value
        for family in exposed(telemetry).values()
        for s in family.samples
    }


def pause(node: str, generation: int, **more: Any) -> Pause:
    told = {"time": 1.0, "trainer": 1, "kind": "join", "size": 2, "step": 3, "pause_s": 0.05, "lost_steps": 0}
    return Pause(node=node, generation=generation, **{**told, **more})


def test_every_trainer_with_nodes_is_exported_with_what_it_reported() -> None:
    found = values(Telemetry())
    assert found["bftrainer_pool_nodes", "used"] == 3
    assert found["bftrainer_pilots",] == 4
    assert found["bftrainer_degraded",] == 1
    assert found["bftrainer_trainers", "completed"] == 1
    assert found["bftrainer_trainer_nodes", "ann", "one"] == 2
    assert found["bftrainer_trainer_metric", "ann", "loss", "one"] == 0.5
    assert found["bftrainer_trainer_metric", 'a "quoted" name', "ann", "one"] == 1.0


def test_for_trainers_beyond_the_bound_there_is_a_count() -> None:
    many = [trainer(f"t{n}") for n in range(10)]
    text = render(Telemetry().metrics.registry, STATUS, many, 3 * (1 + 4 + 2) + 1)
    families = {family.name: family for family in text_string_to_metric_families(text.decode())}
    named = {s.labels["trainer"] for s in families["bftrainer_trainer_nodes"].samples}
    assert named == {"t0", "t1", "t2"}
    assert families["bftrainer_trainers_left_out"].samples[0].value == 7


def test_texts_of_users_break_no_exposition() -> None:
    """Databases of earlier versions may hold such texts."""
    odd = trainer("a\ud800b", user="x\ny", metrics={"loss\ud83d\n# HELP": 1.0})
    text = render(Telemetry().metrics.registry, STATUS, [odd]).decode()
    (sample,) = next(
        f for f in text_string_to_metric_families(text) if f.name == "bftrainer_trainer_metric"
    ).samples
    assert sample.labels == {"trainer": r"a\ud800b", "user": r"x\ny", "metric": r"loss\ud83d\n# HELP"}


def eventful() -> Telemetry:
    """A daemon to which one of everything has happened."""
    telemetry = Telemetry()
    plan = Plan(
        allocator="knapsack", status=PlanStatus.OPTIMAL, counts={}, objective=1.0, bound=1.0, solve_s=0.02
    )
    start = StartWorker(trainer=1, generation=1, node="n1")
    telemetry.took(NodesChanged(time=1.0, joined=frozenset({"n1"})), plan, [start], None)
    telemetry.took(
        PollFailed(time=2.0, reason="slow"), None, [], Ended(trainer=1, status=TrainerStatus.FAILED)
    )
    for node in ("n1", "n2"):
        telemetry.paused(pause(node, 4))
    telemetry.paused(pause("n1", 5, kind="loss", pause_s=3.0, lost_steps=2))
    with telemetry.polling():
        pass
    with pytest.raises(OSError, match="slow"), telemetry.polling():
        raise OSError("slow")
    telemetry.pilot("submitted", [Pilot(tag="a", node="n1"), Pilot(tag="b", node="n2")])
    telemetry.vacated(["17"], ["n1", "n2"], 0.04)
    for affected in (Affected.NO, Affected.CLAIMED, Affected.IN_VAIN):
        telemetry.main_job(MainStart(time=1.0, job="17", nodes=2, wait_s=0.4, affected=affected))
    telemetry.trouble("cancel", "slurmctld sleeps")
    telemetry.bounded("max_connections", "ann", times=3)
    return telemetry


def test_what_happens_is_counted() -> None:
    found = values(eventful())
    assert found["bftrainer_events_total", "nodes_changed"] == 1
    assert found["bftrainer_decisions_total", "optimal"] == 1
    assert found["bftrainer_solve_seconds_bucket", "0.03"] == 1
    assert found["bftrainer_solve_seconds_bucket", "0.01"] == 0
    assert found["bftrainer_actions_total", "start_worker"] == 1
    assert found["bftrainer_trainers_ended_total", "failed"] == 1
    assert found["bftrainer_rescales_total", "join"] == 1, "members of one generation are one rescale"
    assert found["bftrainer_rescales_total", "loss"] == 1
    assert found["bftrainer_pause_seconds_count", "join"] == 2
    assert found["bftrainer_lost_steps_total",] == 2
    assert found["bftrainer_polls_total", "ok"] == found["bftrainer_polls_total", "failed"] == 1
    assert found["bftrainer_poll_seconds_count",] == 2
    assert found["bftrainer_pilot_events_total", "submitted"] == 2
    assert found["bftrainer_pilot_events_total", "vacated"] == 2
    assert found["bftrainer_claims_total",] == 1
    assert found["bftrainer_vacate_seconds_sum",] == 0.04
    assert found["bftrainer_errors_total", "cancel"] == 1
    assert found["bftrainer_bound_hits_total", "max_connections"] == 3


def test_a_fallback_is_counted_and_warned_of_and_its_end_is_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    telemetry = Telemetry()
    plan = Plan(allocator="knapsack", status=PlanStatus.FEASIBLE, counts={}, objective=1.0, bound=2.0)
    fallen = replace(plan, fallback="no licence")
    for made in (plan, fallen, fallen, plan):
        telemetry.took(NodesChanged(time=1.0), made, [], None)
    assert values(telemetry)["bftrainer_fallbacks_total",] == 2
    said = [(r.levelname, r.__dict__["event"], r.__dict__["fields"]) for r in caplog.records]
    assert [(level, event) for level, event, _ in said] == [
        ("INFO", "nodes_changed"),
        ("ERROR", "degraded"),
        ("WARNING", "nodes_changed"),
        ("WARNING", "nodes_changed"),
        ("INFO", "recovered"),
        ("INFO", "nodes_changed"),
    ]
    reason = "knapsack makes the plans: no licence (bftrainer explain BFT-282)"
    assert said[1][2] == {"part": "allocator", "reason": reason}
    assert said[2][2]["fallback"] == "no licence"


def test_two_daemons_in_one_process_count_apart() -> None:
    one, other = Telemetry(), Telemetry()
    one.trouble("cancel", "x")
    assert ("bftrainer_errors_total", "cancel") not in values(other)


def test_every_event_is_a_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    telemetry = Telemetry()
    telemetry.took(NodesChanged(time=1.0, joined=frozenset({"b", "a"}), reason="poll"), None, [], None)
    telemetry.took(Measured(time=1.0, trainer=3, generation=2), None, [], None)
    for text in ("", "disk full", "disk full", "", ""):
        telemetry.condition("store", text)
    said = [(r.levelname, r.__dict__["event"], r.__dict__["fields"]) for r in caplog.records]
    assert said[0][:2] == ("INFO", "nodes_changed")
    assert {k: v for k, v in said[0][2].items() if v} == {
        "joined": 2,
        "joined_names": "a,b",
        "reason": "poll",
    }
    assert said[1][:2] == ("DEBUG", "measured")
    assert [(level, event) for level, event, _ in said[2:]] == [("ERROR", "degraded"), ("INFO", "recovered")]


# --- what is said of the metrics -------------------------------------------------------------------


def test_the_page_lists_every_metric_with_its_labels_and_meaning() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    rows = set(re.findall(r"^\| `(bftrainer_\w+)` \| (\w+) \| (.*?) \| (.+?) \|$", page, re.MULTILINE))
    wanted = set()
    for family in exposed(eventful()).values():
        if family.name.endswith("_created"):
            continue
        name = family.name + {"counter": "_total", "info": "_info"}.get(family.type, "")
        labels = {label for s in family.samples for label in s.labels} - {"le"}
        wanted.add(
            (name, family.type, ", ".join(f"`{label}`" for label in sorted(labels)), family.documentation)
        )
    assert rows == wanted


def test_the_page_names_every_event_of_the_log() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    files = [path for path in (ROOT / "bftrainer").rglob("*.py") if "elastic" not in path.parts]
    source = "".join(path.read_text(encoding="utf-8") for path in files)
    said = set(re.findall(r"""\bnote\(\s*log,\s*"(\w+)\"""", source))
    said |= {f"{part}_failed" for part in re.findall(r"""\.trouble\(\s*"(\w+)\"""", source)}
    of_pilots = "".join(
        path.read_text(encoding="utf-8")
        for room in ("nodes", "daemon")
        for path in (ROOT / "bftrainer" / room).glob("*.py")
    )
    pilots = set(re.findall(r"""(?:\.tell|telemetry\.pilot)\(\s*"(\w+)\"""", of_pilots)) | FAILURES
    said |= {"_".join(re.findall("[A-Z][a-z]+", kind.__name__)).lower() for kind in get_args(Event)}
    assert {"ready", "degraded", "agent_failed", "nodes_changed"} <= said
    assert {"submitted", "refused", "adopted"} <= pilots
    for word in said | pilots:
        assert f"`{word}`" in page, f"docs/metrics.md does not say what {word} is"


def test_the_dashboard_asks_for_metrics_that_there_are() -> None:
    text = (ROOT / "jobscripts" / "grafana-dashboard.json").read_text(encoding="utf-8")
    panels = json.loads(text)["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    asked = set(re.findall(r"bftrainer_\w+", text))
    there = {s.name for family in exposed(eventful()).values() for s in family.samples}
    assert asked - there == set()
    assert len(asked) > 10
