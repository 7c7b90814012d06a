"""What a script of another framework has to bear under torchrun: nodes join, leave and die, and it goes on.

Its script notes a line for each micro-batch, see `Notes`, and the weights at the end in `weights.pt`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from tests.support.site import SCRIPTS, Site
from tests.support.waiting import LONG_S

STEP_S = "0.3"
ONE_THREAD = {"OMP_NUM_THREADS": "1"}


def disturbed(site: Site, script: str, folder: Path) -> dict[str, Any]:
    """Train with nodes `a`, `b` and `c` of a site that come, go and die, and with a cancellation between.
    Returns the trainer in the end."""
    name = Path(script).stem.replace("_", "-")
    checkpoints = {"dir": str(folder / "checkpoints"), "every_s": 0.5}
    spec = {"launcher": "torchrun", "env": ONE_THREAD, "checkpoint": checkpoints, "n_max": 3}
    site.submit(name, script, str(folder), STEP_S, **spec)
    site.change(give=["a"])
    _trains(site, name, "a")
    with no_step_twice(site, folder):
        site.change(give=["b", "c"])
        _trains(site, name, "a", "b", "c")
    before = runs(folder)
    os.kill(site.worker_on("b"), signal.SIGKILL)
    site.until(lambda: runs(folder) != before, LONG_S, "another run")
    _trains(site, name, "a", "b", "c")
    site.change(take=["c"])
    _trains(site, name, "a", "b")
    with no_step_twice(site, folder):
        _rival(site)
        site.until(lambda: len(site.trainer(name)["members"]) == 1, LONG_S, "the rival has a node")
        _trains(site, name, *site.trainer(name)["members"])
    with no_step_twice(site, folder):
        site.client.call("DELETE", f"trainers/{name}")
        cancelled = site.until_ended(name)
        site.until(lambda: not site.trainer(name)["workers"], LONG_S, "its workers have left")
        assert cancelled["status"] == "cancelled" and "loss" in cancelled["metrics"], site.story()
        site.client.call("DELETE", "trainers/rival")
        site.submit(f"{name}-2", script, str(folder), STEP_S, **spec)
        site.until(lambda: site.trainer(f"{name}-2")["samples"], LONG_S, "it trains again")
    (folder / "fast").touch()
    return site.until_ended(f"{name}-2")


@contextmanager
def no_step_twice(site: Site, folder: Path, *, is_noted: bool = True) -> Iterator[None]:
    """What happens inside is told in time: the next run goes on after the last step of the present one,
    and where `is_noted` the log says so.

    Raises:
        AssertionError: it does not.
    """
    old = runs(folder)
    yield
    site.until(lambda: runs(folder)[len(old) :], LONG_S, "the next run")
    steps, new = _steps(folder), runs(folder)[len(old)]
    first, last = min(steps[new]), max(steps[old[-1]])
    assert first == last + 1, f"after step {last} the next run began with {first}\n{site.story()}"
    if is_noted:
        printed = "".join(path.read_text() for path in site.trainers.glob("*/*.log"))
        assert f" bftrainer: resumed from step {first}\n" in printed, site.story()


def runs(folder: Path) -> list[str]:
    """The runs that have begun steps, in order."""
    return list(_steps(folder))


def undisturbed(script: str, folder: Path) -> None:
    """Train in one process, by hand."""
    subprocess.run(
        [sys.executable, SCRIPTS / script, folder],
        env={**os.environ, **ONE_THREAD},
        check=True,
        timeout=LONG_S,
    )


def difference(one: Path, other: Path) -> float:
    """How far the weights of two folders lie apart at most."""
    first, second = (torch.load(folder / "weights.pt", weights_only=True) for folder in (one, other))
    return max(float((first[key] - second[key]).abs().max()) for key in first)


def used(folder: Path) -> tuple[dict[int, list[int]], set[int]]:
    """For each step the samples that count, those of the run that took it last; and all sizes of runs."""
    steps: dict[int, dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    sizes = set()
    for note in _notes(folder):
        steps[note["step"]][note["run"]].append(note)
        sizes.add(note["size"])
    taken = {}
    for step, runs in sorted(steps.items()):
        last = max(runs.values(), key=lambda notes: max(note["at"] for note in notes))
        taken[step] = [sample for note in last for sample in note["samples"]]
    return taken, sizes


def _trains(site: Site, name: str, *nodes: str) -> None:
    """Wait until a trainer has these members, and has told of progress with them."""
    site.until_members(name, *nodes)
    before = site.trainer(name)["samples"]
    site.until(lambda: site.trainer(name)["samples"] > before, LONG_S, f"progress on {nodes}")


def _rival(site: Site) -> None:
    """A trainer that gets one node, whatever it is worth to others, and uses no processor."""
    spec = {"name": "rival", "command": ["sleep", "100000"], "launcher": "torchrun"}
    body = {"spec": json.dumps(spec | {"nodes": {"max": 1}, "weight": 1000.0}), "name": "r", "base": "/"}
    site.client.call("POST", "trainers", body=body)


def _steps(folder: Path) -> dict[str, list[int]]:
    """Run -> the steps that its ranks have begun, the runs in order."""
    found: dict[str, list[int]] = {}
    for note in sorted(_notes(folder), key=lambda note: note["at"]):
        found.setdefault(note["run"], []).append(note["step"])
    return found


def _notes(folder: Path) -> list[dict[str, Any]]:
    lines = [line for path in folder.glob("*.jsonl") for line in path.read_text().splitlines(keepends=True)]
    return [json.loads(line) for line in lines if line.endswith("\n")]
