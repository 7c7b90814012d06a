"""The arithmetic of handing a state over: which ranks have it, which send it where, and in which order."""

from __future__ import annotations

import io
import os
import pickle
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bftrainer.elastic.state.chain import MESSAGE, Message, bytes_from, messages
from bftrainer.elastic.state.packing import StateError, from_bytes, to_bytes
from bftrainer.elastic.state.stream import Roll, links, read_roll
from bftrainer.elastic.state.training_state import TrainingState


def test_the_roll_tells_who_works_who_lacks_and_what_all_of_these_know() -> None:
    assert read_roll([[8, 1, 0, 0, 0], [8, 1, 0, 0, 0], [0, 1, 0, 0, 0]]) == Roll(7, (0, 1), (2,), 0)
    assert read_roll([[7, 1, 0, 0, 0], [8, 1, 0, 0, 0], [0, 8, 50, 0, 0], [0, 8, 40, 0, 0]]).offset == 0, (
        "one starts anew"
    )
    assert read_roll([[8, 1, 0, 0, 0], [0, 8, 50, 0, 0], [0, 8, 40, 0, 0]]) == Roll(7, (0,), (1, 2), 40)
    assert read_roll([[8, 1, 0, 0, 0], [0, 7, 50, 0, 0]]).offset == 0, "it missed a step"
    assert read_roll([[0, 8, 50, 0, 0], [0, 1, 0, 0, 0]]) == Roll(None, (), (0, 1), 0)
    waited = read_roll([[8, 1, 0, 0, 3_000_000], [8, 1, 0, 1, 500_000], [0, 1, 0, 0, 0]])
    assert (waited.waited_s, waited.is_stopped) == (0.5, True), "what the last one did is no pause"


@settings(deadline=None)
@given(members=st.integers(1, 5), shadows=st.integers(1, 9))
def test_every_shadow_is_reached_from_one_member_along_a_chain(members: int, shadows: int) -> None:
    working, lacking = range(members), range(members, members + shadows)
    sinks = {rank: links(working, lacking, rank) for rank in range(members + shadows)}
    for rank, (source, _) in sinks.items():
        assert (source is None) == (rank < members)
        if source is not None:
            assert sinks[source][1] == rank
    assert sum(sink is not None for _, sink in sinks.values()) == shadows


def trained(sizes: list[int]) -> TrainingState:
    model = torch.nn.ParameterList([torch.nn.Parameter(torch.randn(n)) for n in sizes])
    optimizer = torch.optim.Adam(model.parameters())
    for i, p in enumerate(model):
        p.grad = torch.randn_like(p) if i != 1 else None
    optimizer.step()
    return TrainingState({"model": model, "optimizer": optimizer})


def described(message: Message) -> tuple[list[tuple[int, int, int]], int]:
    """Pieces have tensors, which are the same only as objects."""
    return [(id(piece.tensor), piece.start, piece.stop) for piece in message.pieces], message.end


@settings(deadline=None, max_examples=50)
@given(
    sizes=st.lists(st.sampled_from([0, 1, 7, 300, 200_000]), min_size=1, max_size=5), fraction=st.floats(0, 1)
)
def test_messages_bring_everything_once_and_an_element_with_all_that_belongs_to_it(
    sizes: list[int], fraction: float
) -> None:
    state = trained(sizes)
    seen: dict[int, list[tuple[int, int]]] = {}
    found = list(messages(state, 0))
    cut_at = int(fraction * len(found))
    if cut_at < len(found):  # wherever a chunk ends, the next begins
        begin = found[cut_at - 1].end if cut_at else 0
        assert [*map(described, messages(state, begin))] == [*map(described, found[cut_at:])]
        assert bytes_from(state, begin) == sum(message.nbytes for message in found[cut_at:])
    for message in found:
        assert 0 < message.nbytes <= MESSAGE
        for piece in message.pieces:
            seen.setdefault(id(piece.tensor), []).append((piece.start, piece.stop))
    assert (found[-1].end if found else 0) == sum(sizes)
    for parameter in state.parameters():
        ranges = [seen.get(id(tensor), []) for tensor in state.bulk(parameter)]
        assert all(r == ranges[0] for r in ranges)
        covered = [i for start, stop in ranges[0] for i in range(start, stop)]
        assert covered == list(range(parameter.numel()))


def test_any_state_survives_as_bytes() -> None:
    value = {
        "a": [torch.arange(3, dtype=torch.int16), torch.tensor(True), (1.5, None)],
        "b": {"c": torch.ones(2, 2, dtype=torch.bfloat16), "d": torch.empty(0)},
    }
    back = from_bytes(to_bytes(value))
    assert torch.equal(back["a"][0], value["a"][0])
    assert back["a"][1].item() is True
    assert back["a"][2] == (1.5, None)
    assert torch.equal(back["b"]["c"], torch.ones(2, 2, dtype=torch.bfloat16))
    assert back["b"]["d"].shape == (0,)


def test_what_is_small_makes_room_for_the_bulk_and_keeps_what_has_come() -> None:
    source, target = trained([5, 4, 3]), trained([5, 4, 3])
    target_bulk = target.bulk(target.parameters()[0])
    before = [tensor.detach().clone() for tensor in target_bulk]
    target.restore_small(from_bytes(to_bytes(source.small())))
    for tensor, old in zip(target.bulk(target.parameters()[0]), before, strict=True):
        assert torch.equal(tensor, old)
    fresh = TrainingState(
        {
            "model": (m := torch.nn.ParameterList([torch.nn.Parameter(torch.zeros(n)) for n in (5, 4, 3)])),
            "optimizer": torch.optim.Adam(m.parameters()),
        }
    )
    fresh.restore_small(from_bytes(to_bytes(source.small())))
    for theirs, mine in zip(source.parameters(), fresh.parameters(), strict=True):
        assert len(source.bulk(theirs)) == len(fresh.bulk(mine))


def test_only_large_models_with_element_wise_optimisers_stream() -> None:
    def streams(elements: int, kind: type[torch.optim.Optimizer]) -> bool:
        model = torch.nn.ParameterList([torch.nn.Parameter(torch.zeros(elements))])
        return TrainingState({"model": model, "optimizer": kind(model.parameters(), lr=0.1)}).streams

    own = type("Own", (torch.optim.SGD,), {})
    says_so = type("Own", (torch.optim.SGD,), {"elementwise": True})
    assert streams(2_000_000, torch.optim.AdamW)
    assert not streams(1_000, torch.optim.AdamW)
    assert not streams(2_000_000, torch.optim.LBFGS)
    assert not streams(2_000_000, own)
    assert streams(2_000_000, says_so)


class Evil:
    """Its pickle makes a folder where it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.path),)


def skeleton_of(pickled: bytes) -> torch.Tensor:
    """Bytes as a peer sends them: the skeleton's size, then the skeleton."""
    size = torch.tensor([len(pickled)]).view(torch.uint8)
    return torch.cat([size, torch.frombuffer(bytearray(pickled), dtype=torch.uint8)])


@pytest.mark.parametrize("form", ["pickle", "torch"])
def test_no_peer_can_run_code_in_a_worker(tmp_path: Path, form: str) -> None:
    file = io.BytesIO()
    if form == "torch":
        torch.save({"position": Evil(tmp_path / "made")}, file)
    else:
        pickle.dump({"position": Evil(tmp_path / "made")}, file, protocol=2)
    with pytest.raises(StateError, match="is not taken"):
        from_bytes(skeleton_of(file.getvalue()))
    assert not (tmp_path / "made").exists()
    with pytest.raises(StateError, match="is not taken"):
        from_bytes(skeleton_of(b"nonsense"))


def test_a_class_that_no_checkpoint_can_have_is_named_with_what_to_do() -> None:
    with pytest.raises(StateError, match=r"fractions.Fraction.*add_safe_globals"):
        from_bytes(to_bytes({"a": Fraction(1, 3)}))


def test_what_optimisers_and_schedulers_say_of_themselves_is_taken() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    optimizer = torch.optim.AdamW(model.parameters(), lr=torch.tensor(0.1))
    schedulers = [
        torch.optim.lr_scheduler.OneCycleLR(torch.optim.SGD(model.parameters(), lr=0.1), 0.1, total_steps=9),
        torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5**step),
        torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer),
        torch.optim.lr_scheduler.MultiStepLR(optimizer, [3, 5]),
    ]
    parts = [
        model.state_dict(),
        optimizer.state_dict(),
        *(s.state_dict() for s in schedulers),
        np.float64(0.5),
    ]
    back = from_bytes(to_bytes(parts))
    assert back[-1] == 0.5
    assert [part.keys() for part in back[:-1]] == [part.keys() for part in parts[:-1]]
    schedulers[-1].load_state_dict(back[5])
