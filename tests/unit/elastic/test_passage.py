"""A chunk of a state: as many messages as its sender finds time for, some of them under way at once."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch

from bftrainer.elastic.members.group import Group, GroupBroken
from bftrainer.elastic.state import chain
from bftrainer.elastic.state.chain import AHEAD, Parcel, Passage
from bftrainer.elastic.state.handover import HandOver
from bftrainer.elastic.state.packing import tensors_of
from bftrainer.elastic.state.training_state import TrainingState
from tests.support.two_ranks import on_two_ranks, streamed

ELEMENTS, MESSAGES = 2_000, 20


def trained(value: float) -> TrainingState:
    """Cut into `MESSAGES` messages."""
    model = torch.nn.ParameterList([torch.nn.Parameter(torch.full((ELEMENTS,), value))])
    return TrainingState({"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.1)})


@pytest.fixture(autouse=True)
def small_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chain, "MESSAGE", 4 * ELEMENTS // MESSAGES)


def passed(group: Group, ends: list[bool]) -> tuple[list[int], torch.Tensor]:
    """Where the state's passage stands after each chunk, of which some are to end as soon as they begin."""
    state = trained(float(group.rank))
    sends = group.rank == 0
    one = Passage(group, state, None if sends else 0, 1 if sends else None, 0)
    stands = []
    for is_to_end in ends:
        one.open()
        if is_to_end:
            one.end()
        one.chunk()
        stands.append(one.offset)
    one.close()
    return stands, state.parameters()[0].detach()


def test_a_chunk_goes_on_until_it_is_to_end() -> None:
    first, second = on_two_ranks(lambda group: passed(group, [True, False]))
    each = ELEMENTS // MESSAGES
    assert first[0] == second[0] == [AHEAD * each, ELEMENTS], "what was promised; then all of the rest"
    assert not second[1].any(), "it is what the first rank has"


def test_a_chunk_that_is_to_end_has_no_more_than_was_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = Passage._take

    def take(self: Passage, parcel: Parcel) -> None:
        taken(self, parcel)
        if self.offset >= ELEMENTS // 4:
            self.end()

    monkeypatch.setattr(Passage, "_take", take)
    (stands, _), _ = on_two_ranks(lambda group: passed(group, [False]))
    most = ELEMENTS // 4 + (2 * AHEAD) * ELEMENTS // MESSAGES
    assert ELEMENTS // 4 <= stands[0] <= most


def test_several_messages_are_under_way_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = 0
    most = 0

    class Slow(Group):
        """What it begins to receive arrives when it is waited for."""

        def begin_receive(self, tensor: torch.Tensor, rank: int) -> Any:
            nonlocal begun, most
            begun += 1
            most = max(most, begun)
            return self

        def wait_once(self, within_s: float | None = None, waiter: object = None) -> None:
            nonlocal begun
            begun -= 1

    monkeypatch.setattr(torch, "empty", torch.ones)  # and each says that another one comes
    one = Passage(Slow(1, 1, 2), trained(0.0), 0, None, 0)
    one.chunk()
    one.close()
    assert one.is_over and most == AHEAD > 1


def test_no_message_costs_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []
    start = threading.Thread.start

    def noted(thread: threading.Thread) -> None:
        started.append(thread.name)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", noted)
    on_two_ranks(lambda group: passed(group, [False]))
    assert started.count("bftrainer-wait") == 2, "one on each rank"


def test_a_lost_peer_ends_a_chunk() -> None:
    def left(group: Group) -> str:
        if group.rank == 0:
            group.close()
            return ""
        with pytest.raises(GroupBroken) as told:
            passed(group, [False])
        return str(told.value)

    assert on_two_ranks(left)[1]


def test_a_newcomer_shares_the_samples_of_the_step_after_its_last_chunk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bftrainer.elastic.state.training_state.STREAM_FROM", 1)
    monkeypatch.setattr(chain, "GUESS", 1 << 20)

    def shared(group: Group) -> list[bool]:
        state = trained(float(group.rank))
        hand_over = HandOver(state, streams=True, resume=lambda: False)
        hand_over.has_state = group.rank == 0
        hand_over.enter(group)
        found = []
        for _ in range(3):
            hand_over.advance(group)
            found.append(group.rank in hand_over.working)
            assert hand_over._stream is None or not hand_over._stream._jobs.join()
            hand_over.settle()
        hand_over.close()
        return found

    assert on_two_ranks(shared) == ([True, True, True], [False, True, True])


def test_a_large_piece_travels_from_its_own_memory_into_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chain, "MESSAGE", 1 << 20)
    monkeypatch.setattr(chain, "APART", 4_000)
    begun: dict[int, list[tuple[int, int]]] = {0: [], 1: []}

    def noting(operation: Any) -> Any:
        def noted(group: Group, tensor: torch.Tensor, rank: int) -> Any:
            begun[group.rank].append((tensor.data_ptr(), tensor.nbytes))
            return operation(group, tensor, rank)

        return noted

    monkeypatch.setattr(Group, "begin_send", noting(Group.begin_send))
    monkeypatch.setattr(Group, "begin_receive", noting(Group.begin_receive))
    values = [torch.full((1_000,), 2.0), torch.full((10,), 3.0), torch.arange(3_000.0).view(50, 60)]

    def passed_on(group: Group) -> tuple[list[tuple[int, int]], list[torch.Tensor]]:
        sends = group.rank == 0
        model = torch.nn.ParameterList([v.clone() if sends else torch.zeros_like(v) for v in values])
        if not sends:  # the same numbers in another order: it alone has to copy these
            model[2].data = torch.zeros(60, 50).t()
        state = TrainingState({"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.1)})
        one = Passage(group, state, None if sends else 0, 1 if sends else None, 0)
        one.chunk()
        one.close()
        return [(p.data_ptr(), p.nbytes) for p in model], [p.detach() for p in model]

    (mine, _), (theirs, arrived) = on_two_ranks(passed_on)
    assert begun[0][:2] == [mine[0], mine[2]]
    assert begun[1][0] == theirs[0] and begun[1][1] != theirs[2]
    assert [n for _, n in begun[0]] == [n for _, n in begun[1]] == [4_000, 12_000, 40 + 1]
    assert all(torch.equal(value, there) for value, there in zip(values, arrived, strict=True))


def test_a_newcomer_whose_optimiser_is_empty_expects_messages_of_the_same_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(chain, "MESSAGE", 16)  # less than the model's part, which counts then
    monkeypatch.setattr(chain, "APART", 64)

    def handed_over(group: Group) -> Any:
        model = torch.nn.Linear(100, 40)
        state = TrainingState({"model": model, "optimizer": torch.optim.Adam(model.parameters())})
        if group.rank == 0:
            model(torch.ones(1, 100)).sum().backward()
            state.parts["optimizer"].step()  # type: ignore[attr-defined]
        streamed(group, state)
        return state.snapshot()["parts"]

    first, second = on_two_ranks(handed_over)
    for mine, theirs in zip(tensors_of(first), tensors_of(second), strict=True):
        assert torch.equal(mine, theirs)


def test_nothing_arrives_any_more_when_a_chunk_has_failed() -> None:
    begun: list[object] = []
    ended: list[object] = []

    class Receiving:
        def wait_once(self, within_s: float | None = None, waiter: object = None) -> None:
            ended.append(self)
            raise GroupBroken("a peer is lost")

    class Lost(Group):
        """Its peer is lost while messages are under way."""

        def begin_receive(self, tensor: torch.Tensor, rank: int) -> Any:
            begun.append(Receiving())
            return begun[-1]

    one = Passage(Lost(1, 1, 2), trained(0.0), 0, None, 0)
    with pytest.raises(GroupBroken):
        one.chunk()
    one.close()
    assert len(begun) == AHEAD and {*ended} == {*begun}, "it has waited for all that could arrive"
