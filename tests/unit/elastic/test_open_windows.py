"""While gradients wait for further batches, nodes are not changed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from bftrainer.elastic.frameworks import pending_gradients
from bftrainer.elastic.frameworks.pending_gradients import OpenWindows


class Script:
    """A net whose batches a script steps as it likes."""

    def __init__(self, lr: float = 0.1) -> None:
        self.net = torch.nn.Linear(2, 1)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=lr)

    def backward(self, scale: float = 1.0) -> None:
        (scale * self.net(torch.ones(3, 2)).sum()).backward()  # type: ignore[no-untyped-call]


@pytest.fixture
def script() -> Script:
    return Script()


def batches(
    windows: OpenWindows, script: Script, every: int, *, to_none: bool, first: bool
) -> Iterator[bool]:
    """Whether a window is open after each batch of a script that steps after `every` of them; `first`: it
    sets gradients to zero before a window, not after it."""
    for batch in range(3 * every):
        if first and batch % every == 0:
            script.optimizer.zero_grad(set_to_none=to_none)
        script.backward()
        if (batch + 1) % every == 0:
            script.optimizer.step()
            if not first:
                script.optimizer.zero_grad(set_to_none=to_none)
        yield windows.are_open()
        windows.batch_begins()


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("to_none", [False, True])
@pytest.mark.parametrize("every", [1, 2, 4])
def test_a_window_is_open_until_its_step(script: Script, every: int, to_none: bool, first: bool) -> None:
    found = list(batches(OpenWindows([script.optimizer]), script, every, to_none=to_none, first=first))
    assert found == 3 * [*(every - 1) * [True], False]


@pytest.mark.parametrize("to_none", [False, True])
def test_optimisers_that_take_turns_are_done_with_a_batch_each(to_none: bool) -> None:
    """Gradients of the last step may stay until the next: they are taken."""
    scripts = [Script(), Script()]
    windows = OpenWindows([each.optimizer for each in scripts])
    for batch in range(6):
        own = scripts[batch % 2]
        own.optimizer.zero_grad(set_to_none=to_none)
        own.backward()
        own.optimizer.step()
        assert not windows.are_open()
        windows.batch_begins()


def test_an_optimiser_that_accumulates_beside_one_that_does_not(script: Script) -> None:
    other = Script()
    windows = OpenWindows([script.optimizer, other.optimizer])
    found = []
    for open_ in batches(windows, script, 3, to_none=True, first=False):
        other.backward()
        other.optimizer.step()
        other.optimizer.zero_grad()
        found.append(open_)
    assert found == 3 * [True, True, False]


def test_a_script_without_an_end_of_its_windows_is_told_and_not_waited_for_for_ever(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(pending_gradients, "note_warning", told.append)
    windows = OpenWindows([script.optimizer])
    found = []
    for _ in range(pending_gradients.MOST + 2):
        script.backward()
        found.append(windows.are_open())
        windows.batch_begins()
    assert found == [*pending_gradients.MOST * [True], False, True]
    assert len(told) == 1
    assert "for 64 batches some optimizer had gradients that its step had not taken" in told[0]


def test_it_watches_no_longer_when_it_is_closed(script: Script) -> None:
    windows = OpenWindows([script.optimizer])
    windows.close()
    script.backward()
    script.optimizer.step()
    assert windows.are_open()
