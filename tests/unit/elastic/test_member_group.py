"""A member among others: when it switches, what it reports as taken, and what it saves."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from bftrainer import elastic
from bftrainer.elastic.checks.comparison import Comparison
from bftrainer.elastic.loop import progress, steps
from bftrainer.elastic.loop.member_group import MemberGroup
from bftrainer.elastic.loop.observers import Observers, ReplicasDiffer
from bftrainer.elastic.members.group import Group, GroupBroken, Pending
from bftrainer.elastic.members.membership import Membership, Published
from bftrainer.elastic.members.patience import Patience
from bftrainer.elastic.process import warnings
from bftrainer.elastic.process.channel import Orders
from bftrainer.elastic.process.rng import derived
from bftrainer.elastic.state.position import Position
from bftrainer.elastic.state.training_state import TrainingState
from bftrainer.elastic.train.stopped import PART as STOPPED
from bftrainer.elastic.train.stopped import Stopped
from bftrainer.wire.messages.fields import MAX_TEXT, MAX_TEXTS
from tests.support.agent_end import AgentEnd, agent_of, until
from tests.support.two_ranks import on_two_ranks

Member = tuple[AgentEnd, MemberGroup, TrainingState]


@pytest.fixture
def member(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Member]:
    """Rank 0 of two, both with a state, after step 7 of generation 3; reports are due at once."""
    monkeypatch.setattr(progress, "REPORT_EVERY_S", 0.0)
    model = torch.nn.Linear(1, 1)
    stopped = Stopped(epochs=3, budget=None)
    parts = {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.1), STOPPED: stopped}
    state = TrainingState(parts)
    state.position = Position(step=7, samples=70)
    with agent_of(monkeypatch, tmp_path) as (agent, orders):
        found = MemberGroup(
            orders,
            state,
            lambda: None,
            streams=True,
            device=torch.device("cpu"),
            observers=Observers(),
            patience=Patience(),
            stopped=stopped,
        )
        found.group = Group(3, 0, 2)
        found._hand_over.working = (0, 1)
        found._membership.channel.start()
        yield agent, found, state


def last(agent: AgentEnd, kind: str) -> dict[str, Any]:
    until(lambda: any(m["type"] == kind for m in agent.hear()))
    return [m for m in agent.hear() if m["type"] == kind][-1]


def test_a_step_is_reported_when_all_have_taken_it(member: Member) -> None:
    agent, found, _ = member
    found.taken(Position(step=6, samples=60))
    assert last(agent, "progress")["samples"] == 60, "another member may have missed step 7"
    found.group = Group(4, 0, 1)
    found.taken(Position(step=6, samples=60))
    until(lambda: last(agent, "progress")["samples"] == 70)


@pytest.mark.parametrize(("offers", "switched"), [((4, 4), [4]), ((3, 4), []), ((3, 3), [])])
def test_members_switch_when_all_offer_the_same_generation(
    member: Member, monkeypatch: pytest.MonkeyPatch, offers: tuple[int, int], switched: list[int]
) -> None:
    _, found, _ = member
    entered: list[int] = []
    monkeypatch.setattr(found._membership, "switch", lambda generation: Group(generation, 0, 1))
    monkeypatch.setattr(found, "_join", lambda group: entered.append(group.generation))
    flag = torch.tensor([min(offers), min(-offer for offer in offers), 1])
    found._flag = (flag, Pending(None))
    found.taken(Position(step=6, samples=60))
    assert entered == switched


def test_what_is_known_at_the_end_of_a_steps_work_still_counts_for_this_step(
    member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, found, _ = member
    found.group = Group(3, 0, 1)
    entered: list[int] = []
    monkeypatch.setattr(found._membership, "switch", lambda generation: Group(generation, 0, 1))
    monkeypatch.setattr(found, "_join", lambda group: entered.append(group.generation))
    assert found.begin_step()
    monkeypatch.setattr(
        found._membership, "offer", lambda generation, holders: 4
    )  # formed while the step was computed
    found.stop()
    found.agree()
    found.taken(Position(step=6, samples=60))
    assert entered == [4] and found.is_stopped


def test_an_order_to_leave_that_comes_during_a_long_exchange_counts_for_this_step(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(steps, "LONG_BYTES", 0)
    with agent_of(monkeypatch, tmp_path, samples=100 * LENGTH) as (agent, orders):
        run = run_of(orders, monkeypatch, epochs=100)
        finish, membership = run._parts.averaging.finish, run._parts.peers._membership  # type: ignore[attr-defined]

        def exchanged(name: str) -> None:
            finish(name)
            agent.say("regroup", generation=3, members=[], leaving=["a"])
            until(lambda: membership.offer(2, (0,)) == 3)

        monkeypatch.setattr(run._parts.averaging, "finish", exchanged)
        agent.say("regroup", generation=2, members=["a"], leaving=[])
        with pytest.raises(SystemExit):
            train(run)
        assert run.position.step == 1


@pytest.mark.parametrize(("size", "working", "only"), [(2, (0,), 0), (2, (0, 1), None), (3, (0,), None)])
def test_of_two_ranks_one_with_all_samples_sends_its_gradients(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, size: int, working: tuple[int, ...], only: int | None
) -> None:
    begun: list[int | None] = []
    with agent_of(monkeypatch, tmp_path, samples=100 * LENGTH) as (agent, orders):
        run = run_of(orders, monkeypatch, epochs=100)
        peers = run._parts.peers
        agent.say("regroup", generation=2, members=["a"], leaving=[])
        run.start()
        monkeypatch.setattr(Group, "_start", lambda self, tensor, operation: Pending(None))
        monkeypatch.setattr(
            run._parts.averaging, "begin", lambda group, weight, only: begun.append(only) or run.stop()
        )
        monkeypatch.setattr(peers, "finish", lambda: True)
        peers.group, peers._hand_over.working = Group(2, 0, size), working  # type: ignore[attr-defined]
        members = Published(2, ("a", "b", "c")[:size], ())
        peers._membership._entered = peers.group, members  # type: ignore[attr-defined]
        run._steps.joined()
        train(run)
    assert begun == [only]


def test_members_agree_once_a_step_however_many_optimisers_it_has(
    member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, found, _ = member
    exchanged: list[torch.Tensor] = []
    monkeypatch.setattr(
        Group, "begin_all_reduce", lambda self, flag, op: exchanged.append(flag) or Pending(None)
    )
    for _ in range(2):
        found.begin_step()
        found.agree()
        found.agree()
        found.taken(Position(step=6, samples=60))
    assert len(exchanged) == 2


LENGTH = 10


def run_of(orders: Orders, monkeypatch: pytest.MonkeyPatch, **options: Any) -> elastic.Run:
    monkeypatch.setattr(Orders, "from_environment", lambda: orders)
    model = torch.nn.Linear(1, 1)
    data = torch.arange(float(LENGTH)).reshape(LENGTH, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    return elastic.Run(model, optimizer, data, batch_size=4, **options)


def train(run: elastic.Run) -> None:
    for x in run:
        run.backward(run.model(x).sum())
        run.step()


@pytest.mark.parametrize("epochs", [None, 2])
def test_no_step_comes_after_the_last_though_members_are_lost_while_they_agree(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, epochs: int | None
) -> None:
    with agent_of(monkeypatch, tmp_path, samples=None if epochs else 13) as (agent, orders):
        run = run_of(orders, monkeypatch, epochs=epochs)
        finish, answers = run._parts.peers.finish, iter([False, False])
        monkeypatch.setattr(run._parts.peers, "finish", lambda: next(answers, True) and finish())
        agent.say("regroup", generation=2, members=["a"], leaving=[])
        train(run)
        assert last(agent, "finished")["samples"] == run.position.samples == (2 * LENGTH if epochs else 13)


def test_the_end_of_the_work_is_saved_and_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with agent_of(monkeypatch, tmp_path, samples=13) as (agent, orders):
        run = run_of(orders, monkeypatch)
        agent.say("regroup", generation=2, members=["a"], leaving=[])
        train(run)
        assert last(agent, "finished")["samples"] == 13
    (path,) = tmp_path.glob("g*.pt")
    saved = torch.load(path, weights_only=True)
    assert saved["position"] == {"step": 4, "samples": 13, "epoch": 1, "cursor": 3, "gained": 0.0}
    assert torch.equal(saved["parts"]["model"]["weight"], run.model.weight)
    with agent_of(monkeypatch, tmp_path, samples=17) as (agent, orders):  # all nodes were lost meanwhile
        again = run_of(orders, monkeypatch)
        agent.say("regroup", generation=3, members=["a"], leaving=[])
        train(again)
        assert last(agent, "joined")["step"] == 4, "it goes on from the checkpoint"
        assert last(agent, "finished")["samples"] == 17


@pytest.mark.parametrize(
    ("epochs", "samples", "of"),
    [
        (2, None, 2 * LENGTH),
        (2, 13, 13),
        (1, 1000, LENGTH),
        (0, None, None),
        (10**15, 9, 9),
        (10**15, None, None),
    ],
)
def test_a_run_tells_how_many_samples_there_are_in_all(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, epochs: int, samples: int | None, of: int | None
) -> None:
    with agent_of(monkeypatch, tmp_path, samples=samples) as (agent, orders):
        run = run_of(orders, monkeypatch, epochs=epochs)
        agent.say("regroup", generation=2, members=["a"], leaving=[])
        for x in run:
            run.backward(run.model(x).sum())
            run.step()
            run.stop()
        assert last(agent, "finished")["of"] == of


@pytest.mark.parametrize("where", ["hook", "body"])
def test_a_run_that_is_stopped_where_an_epoch_ends_takes_no_step_of_another(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, where: str
) -> None:
    """As by hand. Within an epoch, members learn of it with the next step."""
    with agent_of(monkeypatch, tmp_path) as (agent, orders):
        run = run_of(orders, monkeypatch, epochs=9)
        run.after_epoch(lambda: run.stop() if where == "hook" and run.position.epoch == 2 else None)
        agent.say("regroup", generation=2, members=["a"], leaving=[])
        for x in run:
            run.backward(run.model(x).sum())
            run.step()
            if where == "body" and run.position.epoch == 2:
                run.stop()
        assert last(agent, "finished")["samples"] == run.position.samples == 2 * LENGTH


def test_a_run_tells_what_the_script_was_warned_of(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(warnings, "_last", list[str]())
    with agent_of(monkeypatch, tmp_path, samples=4) as (agent, orders):
        run = run_of(orders, monkeypatch)
        agent.say("regroup", generation=2, members=["a"], leaving=[])
        for p in run.model.parameters():
            p.register_hook(lambda grad: None)  # type: ignore[no-untyped-call]
        with pytest.warns(UserWarning, match="hooks on their gradients") as found:
            train(run)
        (text,) = last(agent, "finished")["warned"]
    first = next(one for one in found if issubclass(one.category, UserWarning))  # not of sockets left open
    assert text == str(first.message)[: len(text)] and Path(first.filename) == Path(__file__)


def test_the_last_few_warnings_are_told_each_once_and_no_longer_than_they_may_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(warnings, "_last", list[str]())
    for text in ("first", "second", "third", "second", "x" * 9999):
        warnings.note_warning(text)
    *others, longest = warnings.last()
    assert others == ["third", "second"] and len(longest) == warnings.LONGEST <= MAX_TEXT
    assert warnings.KEEP < MAX_TEXTS, "with why it cannot save"


@pytest.mark.parametrize(("samples", "kind"), [(None, "finished"), (1000, "progress")])
def test_a_loop_that_is_left_by_an_error_tells_exactly_how_far_it_came(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, samples: int | None, kind: str
) -> None:
    with agent_of(monkeypatch, tmp_path, samples=samples) as (agent, orders):
        run = run_of(orders, monkeypatch)
        agent.say("regroup", generation=2, members=["a"], leaving=[])
        with pytest.raises(ArithmeticError):
            for x in run:
                if run.position.step == 3:
                    raise ArithmeticError
                run.backward(run.model(x).sum())
                run.step()
        assert last(agent, kind)["step"] == 3


def test_a_state_that_an_error_left_half_updated_is_not_saved(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with agent_of(monkeypatch, tmp_path, samples=None) as (agent, orders):
        run = run_of(orders, monkeypatch)
        monkeypatch.setattr(run._parts.update, "take", lambda name, step: 1 / 0)
        agent.say("regroup", generation=2, members=["a"], leaving=[])
        with pytest.raises(ZeroDivisionError):
            train(run)
        last(agent, "joined")
        assert not any(m["type"] == "finished" for m in agent.hear())
    assert not list(tmp_path.glob("g*.pt"))


@pytest.mark.parametrize("epochs", [1, 2])
def test_a_second_loop_after_the_last_epoch_fails_at_once_or_does_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, epochs: int
) -> None:
    with agent_of(monkeypatch, tmp_path, samples=None) as (agent, orders):
        run = run_of(orders, monkeypatch, epochs=epochs)
        agent.say("regroup", generation=2, members=["a"], leaving=[])
        train(run)
        if epochs == 1:  # the script has an outer loop over more
            with pytest.raises(RuntimeError, match="leave the outer loop over epochs out"):
                train(run)
            assert "leave the outer loop over epochs out" in last(agent, "failed")["reason"]
        else:
            with pytest.warns(UserWarning, match="goes through all epochs"):
                train(run)
        assert run.position.epoch == epochs


def test_every_rank_draws_random_numbers_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    drawn: list[tuple[int, int, int]] = []
    monkeypatch.setattr(steps, "reseed", lambda *given: drawn.append(given))
    with agent_of(monkeypatch, tmp_path) as (_, orders):
        run = run_of(orders, monkeypatch)
        peers = run._parts.peers
        assert isinstance(peers, MemberGroup)
        run._parts.observers.enters(run._parts.state)
        peers._membership.channel.start()
        peers._hand_over.working = (0, 1)
        for rank in (0, 1):
            peers.group = Group(3, rank, 2)
            run._steps.joined()
    assert drawn == [(0, 0, 0), (0, 0, 1)]
    assert derived(0, 0, 0) != derived(0, 0, 1)


def test_the_speed_is_measured_anew_when_the_members_have_changed(member: Member) -> None:
    agent, found, _ = member
    now = time.monotonic() + 10.0
    found._progress.after_step(Position(step=1, samples=10), now, 3, 2)
    found._progress.restart(now + 10.0)
    found._progress.after_step(Position(step=2, samples=30), now + 12.0, 4, 2)
    found._progress.after_step(Position(step=3, samples=50), now + 16.0, 4, 2)
    until(lambda: len(agent.hear()) == 3)
    assert [message["rate"] for message in agent.hear()] == [None, None, 5.0]


def test_pauses_do_not_count_in_the_speed_and_however_many_there_are_progress_is_told(
    member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, found, _ = member
    monkeypatch.setattr(progress, "REPORT_EVERY_S", 0.5)
    own, now = found._progress, time.monotonic()
    own.restart(now)
    for step in range(1, 21):  # 0.1 s each, and then 2 s of evaluation
        now += 0.1
        own.after_step(Position(step=step, samples=10 * step), now, 3, 2)
        own.busy(60.0, now)
        now += 2.0
        own.busy(0.0, now)
    until(lambda: len(agent.hear()) >= 3)
    rates = [message["rate"] for message in agent.hear()]
    assert rates[0] is None and rates[1:] == pytest.approx([100.0] * len(rates[1:]))


def test_peers_learn_at_once_that_a_member_has_left_a_broken_group(
    member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, found, _ = member
    closed: list[int] = []
    monkeypatch.setattr(Group, "close", lambda group: closed.append(group.generation))
    monkeypatch.setattr(found, "_rejoin", lambda: None)
    found.lost(GroupBroken("a peer has gone"))
    assert closed == [3] and last(agent, "broken")["generation"] == 3


@pytest.mark.parametrize("is_broken", [True, False])
def test_after_a_loss_every_survivor_saves_the_state_when_none_stays(
    member: Member, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_broken: bool
) -> None:
    _, found, _ = member
    monkeypatch.setattr(Membership, "dissolved", True)
    found.group, found._hand_over.has_state, found._is_broken = Group(3, 1, 2), True, is_broken
    with pytest.raises(SystemExit):
        found.leave()
    assert bool(list(tmp_path.glob("g*.pt"))) == is_broken, "rank 0 saves it, unless that was lost"


def test_the_log_says_from_which_step_a_trainer_goes_on(
    member: Member, capsys: pytest.CaptureFixture[str]
) -> None:
    _, found, state = member
    assert not found._progress.resume()
    assert "bftrainer: begins anew: there is no checkpoint" in capsys.readouterr().err
    found._progress.saver.save(3, wait=True)
    state.position = Position(step=0, samples=0)
    assert found._progress.resume() and state.position.step == 7
    assert "bftrainer: resumed from step 7, of a checkpoint in" in capsys.readouterr().err


def test_a_wish_to_stop_that_only_a_checkpoint_knows_of_ends_the_run(
    member: Member, capsys: pytest.CaptureFixture[str]
) -> None:
    _, found, state = member
    found.stop()
    found.taken(Position(step=6, samples=60))
    assert not found.is_stopped, "the others have not heard of it"
    found._progress.saver.save(generation=3, wait=True)
    found._stopped.is_said = False
    found._hand_over.has_state = False  # as of a process that has just begun
    found._join(Group(4, 0, 1))
    assert found.is_stopped and state.position.step == 7
    assert "no further step is taken" in capsys.readouterr().err


def test_another_end_lets_a_run_go_on_that_its_script_had_stopped(capsys: pytest.CaptureFixture[str]) -> None:
    before, same, more = (Stopped(epochs, None) for epochs in (3, 3, 5))
    before.is_said = True
    for each in (same, more):
        each.load_state_dict(before.state_dict())
    assert same.told() and not more.told()
    assert "with other epochs or work: now it goes on" in capsys.readouterr().err


@pytest.mark.parametrize("apart", [0.0, 1.0])
def test_members_compare_their_states_after_a_step(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, apart: float
) -> None:
    ours, theirs = socket.socketpair()
    with agent_of(monkeypatch, tmp_path) as (_, first), ours:
        second = replace(first, fd=theirs.detach())

        def stepped(group: Group) -> bool:
            found = on_a_rank(group, (first, second)[group.rank], 1.0 + apart * group.rank)
            found.agree()
            found.taken(Position(step=99, samples=990))
            return True

        if apart:
            with pytest.raises(ReplicasDiffer, match=r"after step 100 .* model\.weight is 1 on rank 0, 2 on"):
                on_two_ranks(stepped)
        else:
            assert on_two_ranks(stepped) == (True, True)


def on_a_rank(group: Group, orders: Orders, weight: float) -> MemberGroup:
    """One of two members after step 100, when states are compared."""
    model = torch.nn.Linear(1, 1)
    torch.nn.init.constant_(model.weight, weight)
    torch.nn.init.zeros_(model.bias)
    state = TrainingState({"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.1)})
    state.position = Position(step=100, samples=1000)
    comparison = Comparison(100)
    comparison.enters(state)
    found = MemberGroup(
        orders,
        state,
        lambda: None,
        streams=True,
        device=torch.device("cpu"),
        observers=Observers([comparison]),
        patience=Patience(),
        stopped=Stopped(None, None),
    )
    found.group, found._hand_over.working = group, (0, 1)
    if group.rank == 0:
        found._membership.channel.start()
    return found


@pytest.mark.parametrize("apart", [0.0, 1.0])
def test_members_compare_their_states_at_the_end_before_they_are_saved(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, apart: float
) -> None:
    ours, theirs = socket.socketpair()
    with agent_of(monkeypatch, tmp_path) as (_, first), ours:
        second = replace(first, fd=theirs.detach(), checkpoint_dir=str(tmp_path / "other"))

        def ended(group: Group) -> bool:
            found = on_a_rank(group, (first, second)[group.rank], 1.0 + apart * group.rank)
            return found.finish()

        if apart:
            with pytest.raises(ReplicasDiffer, match=r"after step 100 .* model\.weight is 1 on rank 0, 2 on"):
                on_two_ranks(ended)
        else:
            assert on_two_ranks(ended) == (True, True)
    assert bool(list(tmp_path.glob("g*.pt"))) == (not apart)
