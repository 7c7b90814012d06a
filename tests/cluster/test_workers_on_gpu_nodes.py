"""Nodes of a real Slurm have 4 GPUs: a trainer of two nodes runs 8 workers, each with a GPU of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from slurm.testbed import Testbed
from tests.support.slurm_site import SlurmSite, on_testbed

LONG_S = 240.0
SCRIPTS = {"native": "seat.py", "torchrun": "seat_torchrun.py", "horovod": "seat_horovod.py"}
GPUS = 4


@pytest.fixture(scope="module")
def site() -> Iterator[SlurmSite]:
    with on_testbed(Testbed(nodes=2, gres={"n[1-2]": f"gpu:a100:{GPUS}"})) as site:
        yield site


def seats(where: Path, size: int) -> list[dict[str, Any]]:
    """What the workers of the last membership of this size have noted, by their ranks."""
    notes = [note.name.removesuffix(".json").split("-") for note in where.glob(f"*-{size}-*.json")]
    last = max((int(membership) for membership, _, _ in notes), default=0)
    found = [json.loads(note.read_text("utf-8")) for note in where.glob(f"{last}-{size}-*.json")]
    return sorted(found, key=lambda seat: int(seat["rank"]))


@pytest.mark.parametrize("launcher", SCRIPTS)
def test_two_nodes_with_4_gpus_run_8_workers_with_a_gpu_each(site: SlurmSite, launcher: str) -> None:
    if launcher == "horovod" and find_spec("horovod") is None:
        pytest.skip("Horovod is not installed; run make horovod")
    where = site.root / launcher
    where.mkdir()
    site.submit(
        launcher,
        SCRIPTS[launcher],
        str(where),
        launcher=launcher,
        nodes={"min": 2, "max": 2, "workers": "auto"},
    )
    site.until(lambda: len(seats(where, 2 * GPUS)) == 2 * GPUS, LONG_S, "eight workers train")
    found = seats(where, 2 * GPUS)
    assert [seat["rank"] for seat in found] == list(range(2 * GPUS))
    assert [seat["local"] for seat in found] == [[number, GPUS] for number in range(GPUS)] * 2
    for node in (found[:GPUS], found[GPUS:]):
        assert sorted(seat["device"] for seat in node) == ["0", "1", "2", "3"]
    assert {row["devices"] for row in site.get("pool")["nodes"]} == {f"{GPUS} cuda"}
    site.client.call("DELETE", f"trainers/{launcher}")
    site.until(lambda: site.trainer(launcher)["ended_at"], LONG_S, "it has ended")
