"""Replays of trainers that allow some sizes only: by every allocator, and by hand."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from bftrainer.engine.state import State, Step
from bftrainer.model.actions import Regroup
from bftrainer.model.events import Event
from bftrainer.model.sizes import AllowedSizes
from bftrainer.replay.loop import replay
from bftrainer.replay.trainers.launcher import SimulatedLauncher
from bftrainer.replay.workload import Submission
from bftrainer.traces import intervals
from bftrainer.traces.intervals import Interval
from tests.support.replays import SETTINGS, generated, trainer

POWERS, THREES = AllowedSizes(listed=(1, 2, 4, 8)), AllowedSizes(multiple_of=3)


class Watch:
    """Counts how many nodes trainers hold, and with how many they train."""

    def __init__(self) -> None:
        self.held: dict[int, Counter[int]] = {}
        self.published: dict[int, Counter[int]] = {}

    def wait(self, until: float, launcher: SimulatedLauncher) -> None:
        """Time passes."""

    def note(self, event: Event, before: State, step: Step, launcher: SimulatedLauncher) -> None:
        """What a step has led to."""
        for t in step.state.active.values():
            self.held.setdefault(t.id, Counter())[len(t.nodes)] += 1
        for action in step.actions:
            if isinstance(action, Regroup):
                self.published.setdefault(action.trainer, Counter())[len(action.members)] += 1


@pytest.mark.parametrize(
    ("allocator", "end"), [("auto", 900.0), ("knapsack", 900.0), ("milp", 150.0), ("equal", 900.0)]
)
def test_every_policy_keeps_to_the_allowed_sizes(allocator: str, end: float) -> None:
    sizes = {1: POWERS, 2: THREES, 3: AllowedSizes()}
    limits = {1: (1, 8), 2: (3, 9), 3: (1, 5)}
    work = [
        Submission(0.0, replace(trainer(n_min=limits[j][0], n_max=limits[j][1]), sizes=sizes[j]))
        for j in sizes
    ]
    watch, changes = Watch(), generated(16, end)
    settings = replace(SETTINGS, allocator=allocator)
    replay(changes, work, settings, 0.0, end, observer=watch)
    for found in (watch.held, watch.published):
        assert found[1].keys() <= {0, 1, 2, 4, 8} and found[2].keys() <= {0, 3, 6, 9}
        assert min(sum(own.values()) for own in found.values()) > 20
        assert {2, 4} <= found[1].keys() and {3, 6} <= found[2].keys()


def test_one_of_two_nodes_leaves_a_trainer_of_even_sizes_with_none() -> None:
    """a and b: initialise 0-3, stand 3-5, train 5-60. Then a waits for a second node, in vain."""
    log = [Interval(0.0, 100.0, "a"), Interval(0.0, 60.0, "b")]
    changes = intervals.changes(log, frozenset("ab"), 0.0, 100.0)
    spec = replace(trainer(n_min=2), sizes=AllowedSizes(multiple_of=2))
    result = replay(changes, [Submission(0.0, spec)], SETTINGS, 0.0, 100.0)
    assert result.samples == pytest.approx(10 * 2 * 55, rel=1e-12)
    assert result.tally.idle_node_s == pytest.approx(40.0)


def test_three_nodes_train_as_two_and_the_third_is_free() -> None:
    """a and b train 5-40 and, without c from 40 on, to 100: c is never of use to them."""
    log = [Interval(0.0, 100.0, "a"), Interval(0.0, 100.0, "b"), Interval(20.0, 40.0, "c")]
    changes = intervals.changes(log, frozenset("abc"), 0.0, 100.0)
    spec = replace(trainer(), sizes=AllowedSizes(listed=(1, 2, 4)))
    result = replay(changes, [Submission(0.0, spec)], SETTINGS, 0.0, 100.0)
    assert result.samples == pytest.approx(10 * 2 * 95, rel=1e-12)
    assert result.tally.idle_node_s == pytest.approx(20.0)
    assert result.tally.preemptions == 0


def test_three_of_four_members_stand_still_until_another_node_is_ready() -> None:
    """Four train 5-60. e initialises 60-63, then all stand until 65, and train to the end."""
    log = [*(Interval(0.0, 100.0, node) for node in "acde"), Interval(0.0, 60.0, "b")]
    changes = intervals.changes(log, frozenset("abcde"), 0.0, 100.0)
    spec = replace(trainer(), sizes=AllowedSizes(listed=(1, 2, 4)))
    result = replay(changes, [Submission(0.0, spec)], SETTINGS, 0.0, 100.0)
    assert result.samples == pytest.approx(10 * 4 * (55 + 35), rel=1e-12)
