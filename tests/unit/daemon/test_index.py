"""What memory says of trainers is what the store says, whatever happens."""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from bftrainer.daemon.answers.trainers import latest
from bftrainer.daemon.index import Index
from bftrainer.errors import NameTakenError
from bftrainer.model.actions import Ended
from bftrainer.model.events import Event, NodesChanged, TrainerCancelled, TrainerSubmitted
from bftrainer.model.reports import Progress, TrainerSummary
from bftrainer.model.trainer import TrainerSpec, TrainerStatus
from bftrainer.store.sql import SqlStore

SPEC = TrainerSpec(name="t", command=("python", "train.py"), n_min=1, n_max=2, samples=100)
USERS = ("alice", "bob")
FINAL = [status for status in TrainerStatus if status.final]


class StoreAndIndex(RuleBasedStateMachine):
    """A store and the index beside it, as the daemon has them."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.store = SqlStore(Path(self.folder.name) / "x.db")
        self.index = Index()
        self.time = 0.0
        self.progress: dict[int, Progress] = {}

    def teardown(self) -> None:
        self.store.close()
        self.folder.cleanup()

    def now(self) -> float:
        self.time += 1.0
        return self.time

    @rule(user=st.sampled_from(USERS), name=st.sampled_from("abc"), told_twice=st.booleans())
    def submit(self, user: str, name: str, told_twice: bool) -> None:
        spec, time = replace(SPEC, user=user, name=name), self.now()
        try:
            id_ = self.store.submit(spec, time)
        except NameTakenError:
            return
        if told_twice:  # its submission is answered before the engine takes the event
            self.index.submitted(id_, spec, time - 0.1)
        event = TrainerSubmitted(time=time, trainer=id_, spec=spec)
        self.took(event, None)

    @precondition(lambda self: self.index.count(None))
    @rule(which=st.integers(0, 20), status=st.sampled_from(FINAL), late=st.booleans())
    def end(self, which: int, status: TrainerStatus, late: bool) -> None:
        unfinished = self.index.of(None)
        own = unfinished[which % len(unfinished)]
        event = TrainerCancelled(time=self.now(), trainer=own.id)
        self.took(event, Ended(trainer=own.id, status=status, reason="over"))
        if late:  # its submission is answered only now
            self.index.submitted(own.id, replace(SPEC, user=own.user, name=own.name), own.submitted_at)

    @precondition(lambda self: self.index.count(None))
    @rule(which=st.integers(0, 20))
    def report(self, which: int) -> None:
        unfinished = self.index.of(None)
        id_ = unfinished[which % len(unfinished)].id
        told = {"generation": 1, "size": 1, "step": int(self.time), "samples": 7, "epoch": 1, "rate": 1.0}
        self.progress[id_] = Progress(time=self.now(), trainer=id_, metrics={"loss": self.time}, **told)
        self.store.progress([self.progress[id_]])

    @precondition(lambda self: self.index.recent(None))
    @rule(which=st.integers(0, 20))
    def report_late(self, which: int) -> None:
        over = self.index.recent(None)
        told = {"generation": 1, "size": 0, "step": int(self.time), "samples": 8, "epoch": 1, "rate": 0.0}
        report = Progress(
            time=self.now(), trainer=over[which % len(over)].id, metrics={"loss": self.time}, **told
        )
        self.store.progress([report])
        self.index.reported(report)

    @rule()
    def restart(self) -> None:
        """A new daemon begins with the store."""
        self.index = Index()
        self.index.load(self.store.unfinished_summaries(), self.store.count_ended_by_user())

    def took(self, event: Event, ended: Ended | None) -> None:
        self.store.record(event, [], None, [], ended, frozenset())
        self.index.took(event, ended, self.progress.get(ended.trainer) if ended else None)

    @invariant()
    def memory_says_what_the_store_says(self) -> None:
        for user in (None, *USERS):
            in_store = [self._said(t) for t in self.store.unfinished_summaries(user)]
            assert [self._said(t) for t in self.index.of(user)] == in_store
            assert self.index.count(user) == len(in_store)
            assert self.index.count_ended(user) == Counter(self.store.count_ended(user))
            over = self.store.ended_summaries(3, 0, user)
            assert latest((*over, *self.index.recent(user)), 3) == over, "those that ended last are the same"
            assert latest(self.index.recent(user), 99) == self.store.ended_summaries(
                len(self.index.recent(user)), 0, user
            )
        for user in USERS:
            for name in "abc":
                found = self.index.named(user, name)
                stored = [t for t in self.store.unfinished_summaries(user) if t.name == name]
                assert (found and found.id) == (stored[0].id if stored else None)

    @staticmethod
    def _said(t: TrainerSummary) -> TrainerSummary:
        """Without what memory has elsewhere: the journal has the latest report."""
        return replace(t, step=0, samples=0, epoch=0, rate=None, metrics={})


StoreAndIndex.TestCase.settings = settings(max_examples=20, stateful_step_count=20, deadline=None)
TestStoreAndIndex = StoreAndIndex.TestCase


def test_trainers_are_in_order_whichever_submission_is_answered_first() -> None:
    index = Index()
    for id_ in (2, 5, 3, 4, 3):
        index.submitted(id_, replace(SPEC, user="ann", name=f"t{id_}"), 1.0)
    assert [t.id for t in index.of(None)] == [t.id for t in index.of("ann")] == [2, 3, 4, 5]


def test_what_the_store_cannot_take_at_the_moment_is_listed_all_the_same() -> None:
    index = Index()
    index.submitted(1, replace(SPEC, user="ann"), 1.0)
    index.took(NodesChanged(time=5.0), Ended(trainer=1, status=TrainerStatus.FAILED, reason="x"), None)
    (over,) = latest(index.recent("ann"), 10)
    assert (over.status, over.ended_at, over.reason) == (TrainerStatus.FAILED, 5.0, "x")
    assert index.recent("bob") == [] and index.of(None) == [] and index.get(1) is None


def test_of_those_that_ended_the_latest_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bftrainer.daemon.index.RECENT", 3)
    index = Index()
    for id_ in range(1, 6):
        index.submitted(id_, replace(SPEC, user="ann"), float(id_))
        index.end(Ended(trainer=id_, status=TrainerStatus.CANCELLED), 10.0 + id_, None)
    assert [summary.id for summary in index.recent("ann")] == [3, 4, 5]
    assert index.over(2) is None and index.count_ended("ann").total() == 5
    assert not index._by_user, "users come and go"
