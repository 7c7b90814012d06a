"""Buffers that are not to be saved, and that training changes: newcomers and checkpoints have them."""

from __future__ import annotations

import torch
from torch import nn

from bftrainer.elastic.state.leaves import leaves_of
from bftrainer.elastic.state.parts import UNSAVED, UnsavedBuffers


class Layer(nn.Module):
    """One buffer that is counted up, one that is replaced by one of another shape, one that stays."""

    def __init__(self) -> None:
        super().__init__()
        for name, value in {"count": torch.zeros(2), "cache": torch.zeros(1), "mask": torch.ones(4)}.items():
            self.register_buffer(name, value, persistent=False)
        self.register_buffer("later", None, persistent=False)
        self.count: torch.Tensor
        self.cache: torch.Tensor

    def train_on(self, length: int) -> None:
        """As a forward pass does."""
        self.count += 1
        self.cache = torch.arange(float(length))
        self.later = torch.tensor([float(length)])


def test_what_has_changed_is_carried_over_and_the_rest_is_not_sent() -> None:
    old, new = nn.Sequential(Layer()), nn.Sequential(Layer())
    theirs, mine = UnsavedBuffers({"G": old}), UnsavedBuffers({"G": new})
    assert theirs.state_dict() == {}
    old[0].train_on(3)  # type: ignore[operator]
    sent = theirs.state_dict()
    assert sorted(sent) == ["G.0.cache", "G.0.count", "G.0.later"]
    mine.load_state_dict(sent)
    for name, buffer in old.named_buffers():
        torch.testing.assert_close(dict(new.named_buffers())[name], buffer)
    assert sorted(mine.state_dict()) == sorted(sent), "which a checkpoint of the newcomer has, too"
    old[0].train_on(5)  # type: ignore[operator]
    assert new[0].count.tolist() == [1, 1], "its own memory"  # type: ignore[union-attr, operator]


def test_they_are_compared_once_as_buffers_of_their_model() -> None:
    model = nn.Sequential(Layer())
    part = UnsavedBuffers({"": model})
    model[0].train_on(3)  # type: ignore[operator]
    names = [leaf.name for leaf in leaves_of({"model": model, UNSAVED: part})]
    assert sorted(names) == ["model.0.cache", "model.0.count", "model.0.later", "model.0.mask"]


def test_parts_of_a_script_have_them_too_and_what_is_no_module_has_none() -> None:
    teacher = nn.Sequential(Layer())
    part = UnsavedBuffers({"teacher": teacher, "optimizer": torch.optim.SGD([torch.ones(1)])})
    teacher[0].train_on(3)  # type: ignore[operator]
    assert sorted(part.state_dict()) == ["teacher.0.cache", "teacher.0.count", "teacher.0.later"]
