"""Trainers that a restart takes back to a checkpoint that their script writes by itself."""

from __future__ import annotations

from itertools import pairwise

from bftrainer.model.actions import Regroup
from bftrainer.model.events import Lasted
from bftrainer.model.policy import EngineSettings
from tests.support.engine_world import World

INTERVAL_S = 40.0
SAVES = {"launcher": "torchrun", "checkpoint_interval_s": INTERVAL_S}


def world(t_fwd_s: float = 1000.0) -> World:
    return World(EngineSettings(t_fwd_s=t_fwd_s))


def lasted(w: World) -> None:
    w.take(Lasted(time=0.0, trainer=1, generation=w.trainer(1).published))


def test_it_does_not_grow_before_there_was_time_for_a_checkpoint() -> None:
    w = world().running("a", **SAVES)
    w.nodes(joined="bc")
    assert w.held(1) == "a"
    w.now += INTERVAL_S
    lasted(w)
    assert w.held(1) == "abc"


def test_that_an_earlier_membership_lasted_changes_nothing() -> None:
    w = world().running("a", **SAVES)
    before = w.trainer(1).published
    w.now += INTERVAL_S
    w.nodes(joined="b")
    w.ready(1, "b")
    w.nodes(joined="c")
    assert w.take(Lasted(time=0.0, trainer=1, generation=before)).actions == ()
    assert w.held(1) == "ab"


def test_it_grows_only_where_nodes_stay_for_longer_than_what_is_done_anew() -> None:
    for t_fwd_s, held in ((30.0, "a"), (50.0, "ab")):
        w = world(t_fwd_s).running("a", **SAVES)
        w.now += INTERVAL_S
        w.nodes(joined="b")
        assert w.held(1) == held, t_fwd_s


def test_after_memberships_that_did_not_last_it_begins_with_fewer_nodes() -> None:
    w = world()
    w.submit(1, **SAVES)
    sizes = []
    for _ in range(4):
        w.nodes(joined="abcdefgh")
        sizes.append(len(w.held(1)))
        w.ready(1, w.held(1))
        w.nodes(left="abcdefgh")  # before there is a checkpoint
    assert sizes == [8, 4, 2, 1]
    w.nodes(joined="abcdefgh")
    w.ready(1, w.held(1))
    w.now += INTERVAL_S
    lasted(w)
    assert len(w.held(1)) == 8
    assert w.trainer(1).members == ("a",)


def test_nodes_that_stay_for_half_as_long_as_checkpoints_are_apart_do_not_keep_it_from_all_of_them() -> None:
    """One node stays for good, and every 10 s another comes for 20 s."""
    w = world().running("a", **SAVES)
    memberships = [w.now]
    there: list[str] = []
    for number in range(40):
        w.now += 10.0
        there.append("bcdefgh"[number % 7])
        steps = [w.nodes(joined=there[-1], left=there.pop(0) if len(there) > 2 else "")]
        if new := "".join(sorted(w.trainer(1).joining)):
            steps.append(w.ready(1, new))
        if any(isinstance(action, Regroup) for step in steps for action in step.actions):
            memberships.append(w.now)
    lasted_s = [end - begin for begin, end in pairwise(memberships)]
    assert sum(s >= INTERVAL_S for s in lasted_s) >= 4, lasted_s
