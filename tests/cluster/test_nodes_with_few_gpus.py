"""Nodes of a real Slurm with different numbers of GPUs: which a trainer with a fixed number of workers gets,
and what is told once Slurm is told that a node has lost one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from slurm.testbed import Testbed
from tests.support.slurm_site import SlurmSite, on_testbed

LONG_S = 240.0


@pytest.fixture(scope="module")
def site() -> Iterator[SlurmSite]:
    with on_testbed(Testbed(nodes=2, gres={"n1": "gpu:a100:2", "n2": "gpu:a100:4"})) as site:
        yield site


def lose_one(bed: Testbed) -> None:
    """An admin takes one of n1's two GPUs out of Slurm's files."""
    for name, before, after in (
        ("slurm.conf", "Gres=gpu:a100:2", "Gres=gpu:a100:1"),
        ("gres.conf", "n1-[0-1]", "n1-[0-0]"),
    ):
        file = bed.plan.conf.with_name(name)
        text = file.read_text()
        assert before in text
        file.write_text(text.replace(before, after))
    bed.kill_slurmd("n1")
    bed.stop_controller()
    bed.start_slurmd("n1")
    bed.start_controller()


def test_a_trainer_runs_where_each_worker_has_a_gpu_and_a_lost_one_is_told(site: SlurmSite) -> None:
    where = site.root / "four"
    where.mkdir()
    site.submit("four", "seat.py", str(where), nodes={"min": 1, "max": 2, "workers": 4})
    site.until(lambda: list(where.glob("*-4-*.json")), LONG_S, "four workers train")
    shown = site.trainer("four")
    assert (shown["members"], shown["failures"]) == (["n2"], 0)
    assert shown["note"].endswith("is kept off nodes with fewer GPUs: n1 (2)")
    site.submit("five", "seat.py", str(where), nodes={"min": 1, "max": 1, "workers": 5})
    assert site.trainer("five")["reason"] == (
        "can never run: needs at least 1 node with 5 GPUs, one for each worker (nodes.workers); "
        "no node has more than 4"
    )
    lose_one(site.bed)

    def told() -> list[str]:
        events = site.get("events", limit=1000)
        return [e["data"]["reason"] for e in events if e["kind"] == "GpusChanged" and e["data"]["reason"]]

    site.until(told, LONG_S, "the lost GPU is told")
    assert told() == ["other numbers of GPUs than before: n1 has 1, and had 2"]
    rows = {row["node"]: (row["gpus"], row["gpus_had"]) for row in site.get("pool")["nodes"]}
    assert rows == {"n1": (1, 2), "n2": (4, 4)}
    assert site.trainer("four")["members"] == ["n2"], "what runs goes on"
