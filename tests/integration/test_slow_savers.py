"""Scripts that save by themselves, less often than nodes come and go: they get on all the same.

Without `checkpoint.interval_s` such a trainer is taken back to the same checkpoint for ever.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.support.site import Site, running_at_will
from tests.support.waiting import LONG_S

EPOCH_S, EPOCHS = 1.5, 3
INTERVAL_S = 3.0
"""As the spec says: an epoch, and what a start takes on a slow machine."""
STAYS_S = 0.3
"""Nodes come for so long, and as long after they have gone they come again."""

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(300)]


def submit(site: Site, curve: list[list[float]], **more: Any) -> Path:
    """The trainer that saves once an epoch. Returns its folder."""
    folder = site.root / "saves"
    folder.mkdir()
    words = (str(folder), str(EPOCH_S), str(EPOCHS))
    saves = {"launcher": "torchrun", "checkpoint": {"interval_s": INTERVAL_S}}
    free = {"up": {"stall_s": 0.0}, "down": {"stall_s": 0.0}}
    site.submit("saves", "saves.py", *words, curve=curve, rescale=free, **saves, **more)
    return folder


def starts(folder: Path) -> list[dict[str, float]]:
    """The starts of rank 0: with how many nodes, and when."""
    path = folder / "starts.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@contextmanager
def coming_and_going(site: Site, nodes: str) -> Iterator[None]:
    """These nodes come and go, again and again, until the test is through."""
    through = threading.Event()

    def change() -> None:
        while not through.is_set():
            site.change(give=nodes)
            through.wait(STAYS_S)
            site.change(take=nodes)
            through.wait(STAYS_S)

    thread = threading.Thread(target=change)
    thread.start()
    try:
        yield
    finally:
        through.set()
        thread.join()


def lose_all_of(site: Site, folder: Path, sizes: list[int]) -> None:
    """All nodes come, and go before there is a checkpoint, once for each of these sizes."""
    for number, size in enumerate(sizes, start=1):
        site.change(give="abcd")
        site.until(lambda n=number: len(starts(folder)) == n, LONG_S, f"start {number}, on {size} nodes")
        site.change(take="abcd")
        site.until(lambda: not site.trainer("saves")["members"], LONG_S, "all are lost")


def test_it_begins_with_fewer_nodes_and_grows_only_after_a_checkpoint() -> None:
    with running_at_will("a", "b", "c", "d", t_fwd_s=60) as site:
        folder = submit(site, [[1, 100], [4, 400]])
        lose_all_of(site, folder, [4, 2])
        site.change(give="abcd")
        site.until(lambda: len(starts(folder)) == 3, LONG_S, "it begins anew")
        (there,) = site.trainer("saves")["members"]
        with coming_and_going(site, "abcd".replace(there, "")):
            ended = site.until_ended("saves")
        assert ended["status"] == "completed"
        tries = starts(folder)
        assert [t["size"] for t in tries[:3]] == [4, 2, 1]
        grown = [new["at"] - old["at"] for old, new in pairwise(tries[2:]) if new["size"] > old["size"]]
        assert all(after_s > INTERVAL_S / 2 for after_s in grown), grown


def test_it_does_not_grow_where_that_gains_less_than_is_done_anew() -> None:
    """Half of the speed again for the time for which nodes are expected to stay is less than an interval."""
    with running_at_will("a", "b", "c", "d", t_fwd_s=4.5) as site:
        folder = submit(site, [[1, 100], [4, 150]])
        lose_all_of(site, folder, [4, 2, 1, 1])
        site.change(give="a")
        site.until(lambda: len(starts(folder)) == 5, LONG_S, "the last start")
        site.change(give="bcd")
        ended = site.until_ended("saves")
        assert ended["status"] == "completed"
        assert [t["size"] for t in starts(folder)] == [4, 2, 1, 1, 1]
