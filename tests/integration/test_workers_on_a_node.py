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


def test_each_worker_has_a_device_of_its_own_and_no_more_workers_than_devices_start() -> None:
    with running_at_will("a", "b") as site:
        site.kill_daemon()
        site.environ["SIMULATED_VISIBLE_DEVICES"] = "4,7"
        site.start()
        site.change(give="ab")
        whole = submit(site, "whole")
        site.until(lambda: len(seats(whole, 4)) == 4, LONG_S, "four workers train")
        found = sorted(seats(whole, 4), key=lambda seat: seat["rank"])
        assert [seat["local"] for seat in found] == [[0, 2], [1, 2]] * 2
        assert sorted(seat["device"] for seat in found[:2]) == ["4", "7"]
        assert sorted(seat["device"] for seat in found[2:]) == ["4", "7"]
        assert {row["devices"] for row in site.get("pool")["nodes"]} == {"2 simulated"}
        site.client.call("DELETE", "trainers/whole")

        many = submit(site, "many", workers=3)
        site.until(lambda: site.trainer("many")["ended_at"], LONG_S, "it has failed")
        assert "3 workers are asked for (nodes.workers), and the node has 2" in site.trainer("many")["reason"]
        assert not list(many.iterdir())
