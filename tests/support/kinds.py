"""The kinds of training scripts that users bring, undisturbed and under a pool that churns."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from tests.support import framework_story as story
from tests.support.churn import KILLED, NODES, Churn
from tests.support.site import SCRIPTS, Site
from tests.support.waiting import LONG_S

FOLDER = SCRIPTS / "kinds"
ONE_THREAD = {"OMP_NUM_THREADS": "1"}
RESCALE = {"up": {"stall_s": 0.0, "init_s": 0.0}, "down": {"stall_s": 0.0}}
BATCH = 24


@dataclass(frozen=True)
class Kind:
    """A script of `scripts/kinds`, and what its disturbed run has to have in common with the undisturbed one.

    Args:
        script: its name.
        without: what the comparison says of the script that lacks a line which its kind needs.
        launcher: of its spec.
        length: the samples of an epoch that are used.
        tolerance: how far numbers may lie apart, relative to those above 1. They differ by rounding:
            the order in which gradients are added up depends on the nodes. (In double precision that is some
            1e-15; a sample that one step of `plain.py` lacks changes its weights by 1e-4 and more.)
        files: what the script leaves behind, once.
        words: its further arguments: alone, and disturbed.
    """

    script: str
    without: str
    launcher: str = "native"
    length: int = 98
    tolerance: float = 1e-9
    files: tuple[str, ...] = ("result.pt",)
    words: tuple[tuple[str, ...], tuple[str, ...]] = field(default=((), ()))


class DiffersError(AssertionError):
    """A disturbed run is not what the undisturbed one is."""


@functools.cache
def undisturbed(kind: Kind) -> dict[str, Any]:
    """What the script leaves behind after one process has run it by hand."""
    folder = Path(tempfile.mkdtemp(prefix="bft-kind-"))
    (folder / "fast").touch()
    command = [sys.executable, str(FOLDER / f"{kind.script}.py"), str(folder), *kind.words[0]]
    subprocess.run(command, env={**os.environ, **ONE_THREAD}, cwd=folder, check=True, timeout=LONG_S)
    return results(kind, folder)


def submitted(site: Site, kind: Kind, folder: Path, *words: str) -> str:
    """Submit a script, with all nodes for it; returns the trainer's name."""
    name = f"{kind.script.replace('_', '-')}{'-'.join(['', *words])}"
    (folder / "upto").write_text("0")
    more = {"rescale": RESCALE, "checkpoint": {"every_s": 0.5}, "env": ONE_THREAD, "launcher": kind.launcher}
    script = f"kinds/{kind.script}.py"
    site.submit(name, script, str(folder), *words, *kind.words[1], n_max=len(NODES), **more)
    return name


def churned(site: Site, kind: Kind, folder: Path, seed: int, *words: str) -> dict[str, Any]:
    """Run a script under a pool that churns; returns the trainer in the end."""
    churn = begun(site, kind, folder, seed, *words)
    churn.go_through()
    return finished(churn)


def begun(site: Site, kind: Kind, folder: Path, seed: int, *words: str) -> Churn:
    """Submit a script, and wait until it trains on all nodes."""
    steps = undisturbed(kind)["result.pt/steps"]
    name = submitted(site, kind, folder, *words)
    churn = Churn(site, name, folder, steps=steps, seed=seed, is_restarted=kind.launcher == "torchrun")
    churn.trains(*NODES)
    return churn


def finished(churn: Churn) -> dict[str, Any]:
    """Let the script take the rest of its steps; returns the trainer in the end."""
    (churn.folder / "fast").touch()
    return churn.site.until_ended(churn.name)


def compare(kind: Kind, folder: Path, ended: Mapping[str, Any], *, on: Collection[int] = (1, 2, 3)) -> float:
    """Compare a disturbed run with the undisturbed one; returns how far numbers lie apart at most.
    `on`: it has trained on so many nodes, in the course of time.

    Raises:
        DiffersError: by more than the kind's tolerance, in what is counted, or in the samples that were used.
    """
    if ended["status"] != "completed":
        raise DiffersError(f"{ended['status']}: {ended['reason']}")
    expected = undisturbed(kind)
    found = results(kind, folder)
    if found.keys() != expected.keys():
        raise DiffersError(f"{sorted(found.keys() ^ expected.keys())} are there in one run only")
    steps = found["result.pt/steps"]
    if steps != expected["result.pt/steps"]:
        raise DiffersError(f"it has taken {steps} steps, undisturbed {expected['result.pt/steps']}")
    _used_once(kind, folder, steps, set(on))
    apart = {name: _distance(found[name], expected[name]) for name in expected}
    worst = max(apart, key=lambda name: apart[name])
    if apart[worst] > kind.tolerance:
        raise DiffersError(f"{worst} is {found[worst]}, undisturbed {expected[worst]}")
    if ended["samples"] != (samples := _samples(kind, steps)):
        raise DiffersError(f"{ended['samples']} samples are reported, there were {samples}")
    return apart[worst]


def results(kind: Kind, folder: Path) -> dict[str, Any]:
    """Everything in the files that a script leaves behind, each value by its path."""
    left = sorted(path.name for path in folder.glob("*.pt*"))
    if left != sorted(kind.files):
        raise DiffersError(f"the files are {left}, not {sorted(kind.files)}")
    return {
        "/".join((file, *path)): value
        for file in kind.files
        for path, value in _leaves(torch.load(folder / file, weights_only=False))
    }


def _leaves(value: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            for path, leaf in _leaves(inner):
                yield (str(name), *path), leaf
    else:
        yield (), value


def _distance(one: Any, other: Any) -> float:
    """0 where two values are the same; numbers with a fraction may be as close as rounding leaves them."""
    first, second = torch.as_tensor(one), torch.as_tensor(other)
    if first.shape != second.shape or first.dtype != second.dtype:
        return float("inf")
    if not first.dtype.is_floating_point:
        return 0.0 if bool((first == second).all()) else float("inf")
    scale = second.abs().clamp(min=1.0)
    return float(((first - second).abs() / scale).max())


def _samples(kind: Kind, steps: int) -> int:
    """Those of so many steps; the last one of an epoch has what is left."""
    epochs, more = divmod(steps, -(-kind.length // BATCH))
    return epochs * kind.length + more * BATCH


def _used_once(kind: Kind, folder: Path, steps: int, on: set[int]) -> None:
    """Every sample of every epoch counts once. A worker that was killed took notes of a step with it: of all
    its samples, where it had all of them and the others only followed."""
    taken, sizes = story.used(folder)
    if beyond := [step for step in taken if not 0 <= step < steps]:
        raise DiffersError(f"steps {beyond} were taken, beyond {steps}")
    if not sizes >= on:
        raise DiffersError(f"it has trained on {sizes} nodes")
    per_epoch, missing = -(-kind.length // BATCH), 0
    for first in range(0, steps, per_epoch):
        epoch = range(first, min(first + per_epoch, steps))
        samples = [sample for step in epoch for sample in taken.get(step, ())]
        if len(samples) != len(set(samples)):
            raise DiffersError(f"epoch {first // per_epoch} has used a sample twice")
        missing += _samples(kind, len(epoch)) - len(samples)
    if missing > (KILLED * BATCH if kind.launcher == "native" else 0):
        raise DiffersError(f"{missing} samples were left out")
