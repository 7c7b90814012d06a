"""The examples in trainers/ learn while workers and nodes are lost at random, and as well as without."""

from __future__ import annotations

import functools
import importlib.util
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.support.disturb import LOSSES, RIVAL, cancel, disturb, rescales, submit
from tests.support.site import Site, always, running
from tests.support.waiting import LONG_S

TRAINERS = Path(__file__).parents[2] / "trainers"


@dataclass(frozen=True)
class Quality:
    """What a trainer must reach, and how far two undisturbed runs of it may lie apart by chance.

    docs/evidence/scripts.md has the measurements that the numbers come from.
    """

    name: str
    lowest: float
    highest: float
    noise: float


QUALITIES = {
    "images": Quality("accuracy", 0.95, 1.0, noise=0.02),
    "text": Quality("bits", 0.0, 2.4, noise=0.04),
    "table": Quality("r2", 0.92, 1.0, noise=0.02),
}
FORMS = ["native", "torchrun", "horovod"]
EVERY_COMMIT = {("images", "native")}
"""What a launcher does is told by its contract, with every commit. The other eight are for the night."""


pytestmark = pytest.mark.timeout(900)  # on a busy machine; a quiet one takes half a minute each


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """One for all tests: what its warm pools have imported serves them all."""
    with running(always("n1", "n2", "n3"), t_fwd_s=300) as site:
        yield site


@functools.cache
def undisturbed(task: str) -> float:
    """The quality that one process reaches by hand."""
    command = [sys.executable, TRAINERS / task / "native.py"]
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    said = subprocess.run(command, env=environ, stdout=subprocess.PIPE, text=True, check=True).stdout
    name, value = said.splitlines()[-1].split()
    assert name == QUALITIES[task].name
    return float(value)


@pytest.mark.parametrize(
    ("task", "form"),
    [
        pytest.param(task, form, marks=() if (task, form) in EVERY_COMMIT else pytest.mark.nightly)
        for task in QUALITIES
        for form in FORMS
    ],
)
def test_learns_as_well_while_workers_and_nodes_are_lost(site: Site, task: str, form: str) -> None:
    if form == "horovod" and importlib.util.find_spec("horovod") is None:
        pytest.skip("Horovod is not installed: make horovod")
    file = TRAINERS / task / f"{form}.yaml"
    spec = yaml.safe_load(file.read_text())
    name, wanted = spec["name"], QUALITIES[task]
    submit(site, file)
    try:
        site.until(lambda: 3 in rescales(site, name).values(), LONG_S, f"{name} has all nodes")
        disturb(site, name, random.Random(name))
        ended = site.until_ended(name, seconds=300)
    finally:
        cancel(site, name, RIVAL)
    assert (ended["status"], ended["samples"]) == ("completed", spec["work"]["samples"]), site.story()
    runs, found = rescales(site, name), ended["metrics"][wanted.name]
    print(f"{name}: {len(runs) - 1} rescales, {wanted.name} {found:.4f}, {undisturbed(task):.4f} undisturbed")
    assert len(runs) > len(LOSSES), runs
    assert {2, 3} <= set(runs.values()), runs
    assert wanted.lowest <= found <= wanted.highest
    assert abs(found - undisturbed(task)) <= wanted.noise
