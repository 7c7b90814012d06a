"""A Slurm 24.11 as its own sinfo and squeue show it, against what we make of the same machine.

Its scontrol was not recorded in text, nor its squeue in our format: states and reservations are put into
scontrol's words from its JSON, jobs into our fields from a shorter listing in text and from its JSON.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bftrainer.schedulers.slurm import text, values
from bftrainer.schedulers.slurm.dialect import SEPARATOR
from bftrainer.schedulers.slurm.own_jobs import SlurmOwnJobs
from bftrainer.schedulers.slurm.queue.claims import waits_for_nodes
from bftrainer.schedulers.slurm.rows import SlurmJobRow
from bftrainer.schedulers.slurm.text import FIELDS
from bftrainer.schedulers.slurm.view import SlurmView, interpret, unfit
from tests.support.slurm_samples import MARK, scontrol_24

SAMPLES = Path(__file__).resolve().parents[4] / "shared" / "samples" / "slurm-24.11"
START_FIELDS = ("%i", "%P", "%j", "%T", "%S", "%D", "%Y", "%r", "%l")
"""What squeue-start.txt lists, in its order."""
pytestmark = pytest.mark.skipif(
    not SAMPLES.is_dir(), reason="the recorded outputs are not beside this checkout"
)


def recorded_jobs() -> dict[str, dict[str, Any]]:
    """The queue by number, from JSON."""
    queue = json.loads((SAMPLES / "squeue.json").read_text())["jobs"]
    return {str(job["job_id"]): job for job in queue}


def row(values: dict[str, str]) -> SlurmJobRow:
    """A job as our own format has it."""
    line = SEPARATOR.join((MARK, *(values.get(field.replace("64", ""), "") for field in FIELDS)))
    (job,), odd = text.jobs(line.encode(), MARK)
    assert not odd
    return job


def seconds(local: str) -> str:
    """A time as SLURM_TIME_FORMAT=%s shows it; the machine's clock was at UTC."""
    return f"{datetime.fromisoformat(local).replace(tzinfo=UTC).timestamp():.0f}"


def pending() -> list[SlurmJobRow]:
    found = []
    for line in (SAMPLES / "squeue-start.txt").read_text().splitlines():
        values = dict(zip(START_FIELDS, line.split("|"), strict=True))
        known = recorded_jobs()[values["%i"]]
        values |= {"%S": seconds(values["%S"]), "%u": known["user_name"]}
        values["%Q"] = str(known["priority"]["number"])
        found.append(row(values))
    return found


def running() -> list[SlurmJobRow]:
    return [
        row({"%i": number, "%P": job["partition"], "%T": "RUNNING", "%N": job["nodes"], "%j": job["name"]})
        for number, job in recorded_jobs().items()
        if job["job_state"] == ["RUNNING"]
    ]


def seen(*jobs: SlurmJobRow) -> SlurmView:
    now = recorded_jobs()["2"]["last_sched_evaluation"]["number"]
    ours = SlurmOwnJobs("0a1b2c3d", "root", frozenset({"root"}), "backfill")
    return interpret(text.machine(scontrol_24()), jobs, ours, now=float(now))


def test_what_its_sinfo_calls_idle_is_exactly_what_we_take() -> None:
    listed = [line.split("|") for line in (SAMPLES / "sinfo-N.txt").read_text().splitlines()]
    nodes = text.machine(scontrol_24()).nodes
    assert nodes.keys() == {name for name, *_ in listed}
    assert {name for name, short, *_ in listed if short == "idle"} == {
        n for n in nodes if not unfit(nodes[n])
    }
    said = {"alloc": "allocated", "plnd": "planned", "maint": "maintenance+reserved"}
    assert {n: said.get(short, "" if short == "idle" else short) for n, short, *_ in listed} == {
        name: unfit(node) for name, node in nodes.items()
    }


def test_a_pending_job_in_text_says_what_its_json_says() -> None:
    (job,) = pending()
    known = recorded_jobs()[job.id]
    assert waits_for_nodes(job, 0.0)
    assert (job.name, job.reason, job.count) == ("mainB", "Resources", known["node_count"]["number"])
    assert job.start == known["start_time"]["number"]
    assert job.limit_s == 60 * known["time_limit"]["number"]
    assert job.planned == values.expand(known["scheduled_nodes"])
    assert len(job.planned) == job.count


def test_the_whole_machine() -> None:
    view = seen(*pending(), *running())
    assert view.snapshot.idle == {f"n{i}" for i in range(8, 14)}, "a job is planned on some, minutes later"
    assert view.snapshot.claims == (), "it could not start now"
    start = recorded_jobs()["2"]["start_time"]["number"]
    until = {node.name: node.until for node in view.snapshot.nodes}
    assert {name for name, end in until.items() if end == start} == {f"n{i}" for i in range(1, 12)}
    assert {name for name, end in until.items() if end is None} == {"n12", "n13", "n15", "n16"}
    assert until["n14"] is not None, "it is reserved"
