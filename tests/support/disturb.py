"""What a trainer has to bear: workers and nodes die at random, and others want its nodes."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
from pathlib import Path

import yaml

from tests.support.site import Site
from tests.support.waiting import LONG_S

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
    site.until(
        lambda: not any(t["workers"] for t in site.get("trainers") if t["name"] in names), LONG_S, "they left"
    )


def rescales(site: Site, name: str) -> dict[int, int]:
    """Generation -> number of nodes, for every membership in which a trainer has trained."""
    trainer = site.trainer(name)["id"]
    pauses = site.get("pauses", limit=10_000)
    return {p["generation"]: p["size"] for p in pauses if p["trainer"] == trainer}


def disturb(site: Site, name: str, rng: random.Random) -> None:
    """All `LOSSES`, by SIGKILL, and a rival that comes for a node and goes: in random order, at random
    moments of a trainer's progress, so that a run sees all of them on any machine: in its first half, since
    the second may be over in a second where few nodes are left to share the processors."""
    events = rng.sample([*LOSSES, "rival", "rival"], len(LOSSES) + 2)
    moments = sorted(rng.uniform(0.05, 0.5) for _ in events)
    work = site.trainer(name)["work"]
    for event, moment in zip(events, moments, strict=True):
        site.until(lambda due=moment * work: _so_far(site, name) >= due, 300, f"{moment:.0%} is done")
        if event == "rival":
            _rival(site)
            continue
        before = len(rescales(site, name))
        site.until(lambda event=event: _lose(site, name, event, rng), LONG_S, f"{name} loses {event}")
        site.until(
            lambda n=before: len(rescales(site, name)) > n or site.trainer(name)["ended_at"],
            LONG_S,
            f"{name} goes on without {event}",
        )


def _so_far(site: Site, name: str) -> int:
    found = site.trainer(name)
    assert found["status"] != "failed", site.story()
    samples: int = found["samples"]
    return samples


def _lose(site: Site, name: str, what: str, rng: random.Random) -> bool:
    """Kill what `what` names; returns whether there was such a process."""
    workers = site.trainer(name)["workers"]
    members = [node for node, phase in sorted(workers.items()) if phase == "member"]
    victims = members if what == "all workers" else rng.sample(members, min(1, len(members)))
    lost = 0
    for node in victims:
        with contextlib.suppress(ProcessLookupError, ValueError):  # it is being replaced at this moment
            os.kill(site.agent_on(node) if what == "a node" else site.worker_on(node), signal.SIGKILL)
            lost += 1
    return lost > 0


def _rival(site: Site) -> None:
    """A trainer that gets one node, whatever it is worth to others, and uses no processor; or its end."""
    if any(t["name"] == RIVAL and not t["ended_at"] for t in site.get("trainers")):
        cancel(site, RIVAL)
        return
    spec = {"name": RIVAL, "command": ["sleep", "100000"], "launcher": "torchrun"}
    more = {"nodes": {"max": 1}, "weight": 1000.0}
    body = {"spec": json.dumps(spec | more), "name": RIVAL, "base": str(site.root)}
    site.client.call("POST", "trainers", body=body)
