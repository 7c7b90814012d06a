"""What a trainer has to bear: workers and nodes die at random, and others want its nodes."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from testbed import Site

RIVAL = "rival"
LOSSES = ("a worker", "a worker", "all workers", "a node")


def submit(site: Site, file: Path) -> None:
    """Submit a spec's file, as a trainer that always gains from more nodes: how busy this machine is, and
    how long rescales take on it, shall not decide whether there are any."""
    eager = {
        "curve": [[1, 1000.0], [4, 4000.0]],
        "rescale": {"up": {"stall_s": 0.0, "init_s": 0.0}, "down": {"stall_s": 0.0}},
    }
    spec = yaml.safe_load(file.read_text()) | eager
    body = {"spec": json.dumps(spec), "name": file.name, "base": str(file.parent)}
    site.client.call("POST", "trainers", body=body)


def cancel(site: Site, *names: str) -> None:
    """Have trainers end that have not, and wait until their nodes are free."""
    for trainer in site.get("trainers"):
        if trainer["name"] in names and not trainer["ended_at"]:
            site.client.call("DELETE", f"trainers/{trainer['name']}")
    site.until(lambda: not any(t["workers"] for t in site.get("trainers") if t["name"] in names), 60, "left")


def rescales(site: Site, name: str) -> dict[int, int]:
    """Generation -> number of nodes, for every membership in which a trainer has trained."""
    trainer = site.trainer(name)["id"]
    pauses = site.get("pauses", limit=10_000)
    return {p["generation"]: p["size"] for p in pauses if p["trainer"] == trainer}


def disturb(site: Site, name: str, rng: random.Random) -> None:
    """All `LOSSES`, by SIGKILL, and a rival that comes for a node and goes: in random order, at random
    moments of a trainer's progress, so that a run sees as many of them on any machine."""
    events = rng.sample([*LOSSES, "rival", "rival"], len(LOSSES) + 2)
    moments = sorted(rng.uniform(0.05, 0.85) for _ in events)
    work = site.trainer(name)["work"]
    for event, moment in zip(events, moments, strict=True):
        site.until(
            lambda due=moment * work: _so_far(site, name)["samples"] >= due, 300, f"{moment:.0%} is done"
        )
        before = len(rescales(site, name))
        _happen(site, event, rng)
        site.until(
            lambda n=before: len(rescales(site, name)) > n or _so_far(site, name)["ended_at"],
            120,
            f"{name} goes on after {event}",
        )


def _so_far(site: Site, name: str) -> dict[str, Any]:
    found = site.trainer(name)
    assert found["status"] != "failed", site.story()
    return found


def _happen(site: Site, event: str, rng: random.Random) -> None:
    if event == "rival":
        there = [t for t in site.get("trainers") if t["name"] == RIVAL and not t["ended_at"]]
        cancel(site, RIVAL) if there else _rival_comes(site)
        return
    pids = site.agents() if event == "a node" else site.workers()
    _kill(pids if event == "all workers" else rng.sample(pids, min(1, len(pids))))


def _rival_comes(site: Site) -> None:
    """A trainer that takes one node, whatever it is worth to others, and no time of the processor."""
    spec = {"name": RIVAL, "command": ["sleep", "100000"], "launcher": "torchrun"}
    more = {"nodes": {"max": 1}, "weight": 1000.0}
    body = {"spec": json.dumps(spec | more), "name": RIVAL, "base": str(site.root)}
    site.client.call("POST", "trainers", body=body)


def _kill(pids: Sequence[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
