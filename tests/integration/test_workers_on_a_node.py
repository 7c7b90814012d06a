"""Nodes with several simulated devices on a real daemon: what each worker has, and too many of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support.site import Site, running_at_will
from tests.support.waiting import LONG_S


def seats(where: Path, size: int) -> list[dict[str, Any]]:
    """What the workers of a membership of this size have noted, the latest of each rank."""
    notes = sorted(where.glob(f"*-{size}-*.json"), key=lambda note: note.stat().st_mtime)
    return list({note.stem.rpartition("-")[2]: json.loads(note.read_text()) for note in notes}.values())


def submit(site: Site, name: str, **nodes: object) -> Path:
    where = site.root / name
    where.mkdir()
    site.submit(name, "seat.py", str(where), samples=10**7, nodes={"min": 1, "max": 2, **nodes})
    return where


def test_each_worker_has_a_device_of_its_own_and_a_node_with_too_few_is_left_to_others() -> None:
    with running_at_will("a", "b") as site:
        site.kill_daemon()
        site.environ["SIMULATED_VISIBLE_DEVICES"] = "4,7"
        site.start()
        site.change(give="ab")
        many = submit(site, "many", workers=3)
        needs = "needs 1 node with 3 GPUs each, and none of the machine's can be had now"
        site.until(lambda: site.trainer("many")["reason"] == needs, LONG_S, "it waits for other nodes")
        shown = site.trainer("many")
        assert shown["status"] == "waiting" and shown["failures"] == 0 and not list(many.iterdir())
        told = [e["data"]["reason"] for e in site.get("events", limit=1000) if e["kind"] == "GpusChanged"]
        assert (
            "the pilot on a has 2 devices (simulated): too few for 3 workers, which get other nodes" in told
        )

        whole = submit(site, "whole")
        site.until(lambda: len(seats(whole, 4)) == 4, LONG_S, "four workers train")
        found = sorted(seats(whole, 4), key=lambda seat: seat["rank"])
        assert [seat["local"] for seat in found] == [[0, 2], [1, 2]] * 2
        assert sorted(seat["device"] for seat in found[:2]) == ["4", "7"]
        assert sorted(seat["device"] for seat in found[2:]) == ["4", "7"]
        assert {row["devices"] for row in site.get("pool")["nodes"]} == {"2 simulated"}


def test_a_trainer_goes_on_with_the_nodes_that_have_a_gpu_for_each_of_its_workers() -> None:
    with running_at_will("a", "b") as site:
        site.kill_daemon()
        site.environ |= {"DEVICES_A": "0,1", "DEVICES_B": "0,1,2"}
        site.start()
        site.change(give="ab")
        where = submit(site, "three", workers=3)
        site.until(lambda: len(seats(where, 3)) == 3, LONG_S, "three workers train")
        shown = site.trainer("three")
        assert shown["members"] == ["b"] and shown["failures"] == 0
        assert shown["note"].endswith("is kept off nodes with fewer GPUs: a (2)")
        assert {row["node"]: row["gpus"] for row in site.get("pool")["nodes"]} == {"a": 2, "b": 3}
        submit(site, "four", workers=4)
        assert site.trainer("four")["reason"] == (
            "can never run: needs at least 1 node with 4 GPUs, one for each worker (nodes.workers); "
            "no node has more than 3"
        )
        assert site.trainer("four")["remedy"].startswith("ask for fewer workers on each node")
