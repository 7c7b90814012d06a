"""Which stories of the launchers' contract `make test` tells with real processes, and why.

The simulated launcher tells all of them, and the native one all but those that other tests with real
processes have as well. All launchers share `launch/launcher.py`, which starts, stops and loses workers, takes
over what ran while there was no daemon, and counts samples. With torchrun and Horovod a story stays where it
runs through code that only its launcher has. `make nightly` tells the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import wraps
from typing import Any

import pytest

from bftrainer.testing.launcher import LauncherContract

COMMON = {
    "test_several_nodes_join_at_once": "a membership with one newcomer or with two is published alike",
    "test_a_killed_agent_takes_its_worker_along_and_the_node_comes_back": "the pool and the agents see to it",
    "test_all_workers_are_killed_at_once": "no worker is left to stop: what follows is a first start",
    "test_all_nodes_are_taken_at_once": "no worker is left to stop: what follows is a first start",
    "test_a_hung_worker_is_replaced": "the agent kills it, which is a loss like others",
    "test_a_joining_node_dies_before_its_worker_is_ready": "it is in no membership yet: the engine's matter",
    "test_a_joiner_dies_before_it_joins": "it is in no membership yet: the engine's matter",
    "test_a_joiner_is_taken_before_it_joins": "it is in no membership yet: the engine's matter",
    "test_the_daemon_restarts_while_a_worker_starts": "the inventory of agents, which is common",
    "test_a_worker_dies_while_there_is_no_daemon": "the inventory of agents, which is common",
}
"""Story -> why it is enough to tell it at night with torchrun and with Horovod."""

NIGHTLY: dict[str, dict[str, str]] = {
    "native": {
        "test_a_node_joins": "two that join at once take the same way, and so does a node that comes back",
        "test_a_node_joins_and_another_leaves_in_one_change": "two changes in quick succession have it too",
        "test_a_killed_worker_is_replaced": "the loss of rank 0 takes the same way, and more of it",
        "test_all_workers_are_killed_at_once": "test_kinds_of_scripts.py has it, with exact results",
        "test_several_nodes_join_at_once": "two come back at once in test_kinds_of_scripts.py",
        "test_all_nodes_are_taken_at_once": "no worker is left to stop: what follows is a first start",
        "test_a_killed_agent_takes_its_worker_along_and_the_node_comes_back": "test_trainers.py has it",
        "test_a_joining_node_dies_before_its_worker_is_ready": "the death of a joining worker is kept",
        "test_a_joiner_is_taken_before_it_joins": "the death of a joining worker is kept",
        "test_a_worker_dies_while_there_is_no_daemon": "the inventory of agents, which is common",
        "test_a_program_that_ends_with_work_left_is_started_again": "torchrun and Horovod tell it",
    },
    "torchrun": {
        **COMMON,
        "test_a_killed_worker_is_replaced": "the loss of rank 0 takes the same way, and more of it",
        "test_a_node_joins": "a node that left comes back in the story of the notice: the same change",
        "test_a_node_joins_and_another_leaves_in_one_change": "two changes in quick succession have it too",
        "test_a_joiner_dies_just_after_it_has_joined": "a member's death ends the run, as rank 0's does",
    },
    "horovod": {
        **COMMON,
        "test_a_node_joins": "a node that left comes back in the story of the notice: the same change",
        "test_two_changes_in_quick_succession": "the driver is told of the second as of the first",
        "test_cancelled_while_a_node_joins": "torchrun's story stops a warm process alike",
        "test_a_joiner_dies_just_after_it_has_joined": "a busy Horovod may take a step again, and say so",
    },
}
"""Launcher -> story -> why it is enough to tell it at night."""

SEVERAL: dict[str, dict[str, str]] = {
    "native": {
        "test_a_node_leaves_with_notice_and_comes_back": "all workers of a node leave and join together",
        "test_rank_0_is_killed": "one of a node's workers dies, and the others go with it",
    },
    "torchrun": {
        "test_a_node_leaves_with_notice_and_comes_back": "rank 0 is told, and then the others of its node",
    },
    "horovod": {
        "test_a_node_leaves_with_notice_and_comes_back": (
            "the driver loses a host of two workers, and waits for both when it comes back"
        )
    },
}
"""Launcher -> story -> why every commit tells it with two workers a node, too; `make nightly` tells all."""

EVERY_COMMIT: dict[str, dict[str, str]] = {
    "torchrun": {
        "test_a_node_leaves_with_notice_and_comes_back": (
            "rank 0 writes the state down and stops, then the others, then the next run begins"
        ),
        "test_two_changes_in_quick_succession": (
            "a membership is replaced while the run before it still stops, and its store is opened in vain"
        ),
        "test_shrinks_to_nothing_and_returns_on_other_nodes": (
            "a run is halted and no other follows: processes that have stopped are dismissed"
        ),
        "test_rank_0_is_killed": "a death ends the run of all, and no leader is there to stop first",
        "test_a_program_that_ends_with_work_left_is_started_again": (
            "exit code 0 of another rank says nothing; rank 0's is a loss as long as there is work"
        ),
        "test_a_joiner_dies_while_it_joins": "what ends before it was told to begin belongs to the run to be",
        "test_cancelled_while_a_node_joins": "a warm process is stopped whose run never begins",
        "test_the_daemon_restarts_when_a_change_has_just_been_published": (
            "the next daemon has a new store, and finds processes in a run that it does not know"
        ),
    },
    "horovod": {
        "test_a_node_leaves_with_notice_and_comes_back": (
            "a worker leaves by itself when the driver has no place for it; a newcomer waits until it has one"
        ),
        "test_a_node_joins_and_another_leaves_in_one_change": (
            "the driver is told of a host that died with its node, while another joins"
        ),
        "test_shrinks_to_nothing_and_returns_on_other_nodes": (
            "rank 0 writes the state down before the others end; the driver ends with the last worker"
        ),
        "test_a_killed_worker_is_replaced": "the driver hears which host lost a worker while its node stays",
        "test_rank_0_is_killed": "the survivors have the state, and one of them leads the next world",
        "test_a_program_that_ends_with_work_left_is_started_again": (
            "a worker that ended well is kept until rank 0 says whether the work is done, and disowned after"
        ),
        "test_a_joiner_dies_while_it_joins": "all meet anew through the checkpoint: the world is torn",
        "test_the_daemon_restarts_when_a_change_has_just_been_published": (
            "the driver outlives the daemon, is found again, and may not have heard of the change"
        ),
    },
}
"""Launcher -> story -> the code of its own that the story runs through."""


def stories() -> set[str]:
    """The names of all stories of the contract."""
    return {name for name in dir(LauncherContract) if name.startswith("test_")}


def nightly_but(kept: Collection[str]) -> Callable[[type], type]:
    """Mark the stories of a class of tests that are not kept; other classes keep theirs as they are."""

    def mark(tests: type) -> type:
        for name in sorted(stories() - set(kept)):  # in one order in all processes that share the tests
            setattr(tests, name, pytest.mark.nightly(_own(getattr(LauncherContract, name))))
        return tests

    return mark


def _own(story: Callable[..., None]) -> Callable[..., None]:
    """A function that tells the same story: marks are put on functions, and this one is shared."""

    @wraps(story)
    def told(self: Any, world: Any) -> None:
        story(self, world)

    return told
