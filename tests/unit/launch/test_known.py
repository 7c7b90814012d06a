"""Which trainers a launcher knows, and which workers it finds on a node."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from bftrainer.launch.job import LaunchedTrainer, WorkerView
from bftrainer.launch.known import KnownTrainers
from bftrainer.model.trainer import TrainerSpec

SPEC = TrainerSpec(name="a", command=("a",), n_min=1, n_max=4)
changes = st.lists(st.tuples(st.integers(1, 3), st.sampled_from("abc"), st.booleans(), st.booleans()))


@given(changes)
def test_a_node_has_the_workers_that_its_trainers_have_there(
    changes: list[tuple[int, str, bool, bool]],
) -> None:
    known: KnownTrainers[LaunchedTrainer] = KnownTrainers(lambda trainer: None)
    for trainer in (1, 2, 3):
        known.add(LaunchedTrainer(id=trainer, spec=SPEC, by_node=known.by_node))
    for trainer, node, comes, left in changes:
        if comes:
            known[trainer].put(node, WorkerView(1, sent=True, left=left))
        elif node in known[trainer].workers:
            known[trainer].lose(node)
        for each in "abc":
            there = {t.id: t.workers[each] for t in known if each in t.workers}
            assert {t.id: view for t, view in known.at(each)} == there
            assert known.busy(each) == any(not view.left for view in there.values())
        assert known.any_workers() == any(t.workers for t in known)


def test_whether_a_node_is_busy_is_not_asked_of_trainers_elsewhere() -> None:
    known: KnownTrainers[LaunchedTrainer] = KnownTrainers(lambda trainer: None)
    for trainer in range(100):
        known.add(LaunchedTrainer(id=trainer, spec=SPEC, by_node=known.by_node))
        known[trainer].put(f"n{trainer}", WorkerView(1, sent=True))
    known._trainers.clear()  # whatever is asked of a trainer fails
    assert known.busy("n7") and not known.busy("m")


def test_a_forgotten_trainer_is_told_of_once_its_last_worker_has_gone() -> None:
    told: list[int] = []
    known: KnownTrainers[LaunchedTrainer] = KnownTrainers(told.append)
    known.add(LaunchedTrainer(id=1, spec=SPEC, by_node=known.by_node))
    known[1].put("a", WorkerView(1))
    known.forget(1)
    known.prune()
    assert told == [] and 1 in known
    known[1].drop("a")
    known.prune()
    known.prune()
    known.forget(1)
    assert told == [1] and 1 not in known


def test_what_may_start_on_a_node_is_asked_once_for_each_user() -> None:
    known: KnownTrainers[LaunchedTrainer] = KnownTrainers(lambda trainer: None)
    for trainer in range(300):
        spec = replace(SPEC, name=f"t{trainer}", user=f"u{trainer % 3}")
        known.add(LaunchedTrainer(id=trainer, spec=spec, by_node=known.by_node))
    known[2].succeeded = True
    asked: list[str] = []

    def serves(user: str) -> TrainerSpec | None:
        asked.clear()
        return known.may_start(lambda spec: asked.append(spec.user) or spec.user == user)  # type: ignore[func-returns-value]

    assert getattr(serves("u2"), "name", "") == "t5", "the first that has not finished"
    assert serves("other") is None and len(asked) == 3
    for trainer in range(2, 300, 3):
        known.forget(trainer)
    assert serves("u2") is None and len(asked) == 2
