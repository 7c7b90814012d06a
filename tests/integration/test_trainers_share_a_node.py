"""Trainers on the GPUs of one node, with a real daemon, agents and workers, and simulated devices."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bftrainer.errors import BftrainerError
from tests.support.site import Site, always, running
from tests.support.waiting import LONG_S


def seats(where: Path, size: int) -> dict[int, str]:
    """Rank -> device, as the workers of a membership of this size have noted, the latest of each rank."""
    notes = sorted(where.glob(f"*-{size}-*.json"), key=lambda note: note.stat().st_mtime)
    return {int(note.stem.rpartition("-")[2]): json.loads(note.read_text())["device"] for note in notes}


def submit(site: Site, name: str, most: int, script: str = "seat.py", **more: Any) -> Path:
    where = site.root / name
    where.mkdir()
    gpus = {"min": 1, "max": most}
    site.submit(name, script, str(where), samples=10**7, n_max=most, nodes=None, gpus=gpus, **more)
    return where


def test_two_trainers_share_the_gpus_of_a_node() -> None:
    with running(always("a"), "--gpus", "3", share="gpu") as site:
        one = submit(site, "one", 1, weight=9.0)
        two = submit(site, "two", 3)
        site.until(lambda: seats(one, 1) and len(seats(two, 2)) == 2, LONG_S, "both train")
        devices = [*seats(one, 1).values(), *seats(two, 2).values()]
        assert sorted(devices) == ["0", "1", "2"], "each worker has a device of its own"
        nodes = {row["node"]: row for row in site.get("pool")["nodes"]}
        assert sorted(nodes) == ["a:0", "a:1", "a:2"]
        assert {row["devices"] for row in nodes.values()} == {"1 simulated"}

        site.client.call("DELETE", "trainers/one")
        site.until(lambda: len(seats(two, 3)) == 3, LONG_S, "the other has its GPU, too")
        assert sorted(seats(two, 3).values()) == ["0", "1", "2"]
        assert site.trainer("two")["status"] == "running"
        assert {site.get(what)["unit"] for what in ("trainers/two", "status", "pool")} == {"GPU"}


def test_torchruns_workers_have_a_gpu_each_and_a_restarted_daemon_finds_them() -> None:
    with running(always("a"), "--gpus", "2", share="gpu") as site:
        where = submit(site, "pair", 2, script="seat_torchrun.py", launcher="torchrun")
        site.until(lambda: len(seats(where, 2)) == 2, LONG_S, "both train")
        assert sorted(seats(where, 2).values()) == ["0", "1"]
        site.kill_daemon()
        site.start()
        site.until(lambda: site.trainer("pair")["members"] == ["a:0", "a:1"], LONG_S, "it goes on")


@pytest.mark.nightly
def test_horovods_workers_have_a_gpu_each_and_take_another_one_in() -> None:
    with running(always("a"), "--gpus", "3", share="gpu") as site:
        other = submit(site, "other", 1, weight=9.0)
        where = submit(site, "pair", 3, script="seat_horovod.py", launcher="horovod")
        site.until(lambda: seats(other, 1) and len(seats(where, 2)) == 2, LONG_S, "both train")
        devices = [*seats(where, 2).values(), *seats(other, 1).values()]
        assert sorted(devices) == ["0", "1", "2"], "each worker has a device of its own"
        site.client.call("DELETE", "trainers/other")
        site.until(lambda: len(seats(where, 3)) == 3, LONG_S, "it has the third GPU, too")
        assert sorted(seats(where, 3).values()) == ["0", "1", "2"]
        assert sorted(site.trainer("pair")["members"]) == ["a:0", "a:1", "a:2"]


def test_whole_nodes_are_shared_out_unless_gpus_are() -> None:
    with running(always("a")) as site, pytest.raises(BftrainerError, match="whole nodes are shared out here"):
        submit(site, "part", 2)
