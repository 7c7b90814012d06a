"""While gradients wait for further batches, nodes are not changed."""

from __future__ import annotations

import gc
import weakref
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


@pytest.fixture
def windows() -> Iterator[OpenWindows]:
    found = OpenWindows()
    yield found
    found.close()


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
def test_a_window_is_open_until_its_step(
    windows: OpenWindows, script: Script, every: int, to_none: bool, first: bool
) -> None:
    found = list(batches(windows, script, every, to_none=to_none, first=first))
    assert found == 3 * [*(every - 1) * [True], False]


@pytest.mark.parametrize("to_none", [False, True])
def test_optimisers_that_take_turns_are_done_with_a_batch_each(windows: OpenWindows, to_none: bool) -> None:
    """Gradients of the last step may stay until the next: they are taken."""
    scripts = [Script(), Script()]
    for batch in range(6):
        own = scripts[batch % 2]
        own.optimizer.zero_grad(set_to_none=to_none)
        own.backward()
        own.optimizer.step()
        assert not windows.are_open()
        windows.batch_begins()


def test_an_optimiser_that_accumulates_beside_one_that_does_not(windows: OpenWindows, script: Script) -> None:
    other = Script()
    windows.know([script.optimizer])  # before its first step
    found = []
    for open_ in batches(windows, script, 3, to_none=True, first=False):
        other.backward()
        other.optimizer.step()
        other.optimizer.zero_grad()
        found.append(open_)
    assert found == 3 * [True, True, False]


@pytest.mark.parametrize("is_known", [False, True])
def test_a_script_without_an_end_of_its_windows_is_not_waited_for_for_ever(
    windows: OpenWindows, script: Script, monkeypatch: pytest.MonkeyPatch, is_known: bool
) -> None:
    """It is told of an optimiser that is never stepped. A script without any follows a rule of its own."""
    told: list[str] = []
    monkeypatch.setattr(pending_gradients, "note_warning", told.append)
    windows.know([script.optimizer] if is_known else [])
    found = []
    for _ in range(2 * pending_gradients.MOST):
        script.backward()
        found.append(windows.are_open())
        windows.batch_begins()
    assert found == [*pending_gradients.MOST * [True], *pending_gradients.MOST * [False]]
    words = "for 64 batches some optimizer had gradients that its step had not taken"
    assert [words in each for each in told] == is_known * [True]


def test_an_optimiser_that_was_given_up_counts_again_from_its_next_step_on(
    windows: OpenWindows, script: Script
) -> None:
    windows.know([script.optimizer])
    for _ in range(pending_gradients.MOST + 1):
        script.backward()
        windows.are_open()
        windows.batch_begins()
    assert list(batches(windows, script, 2, to_none=True, first=False))[2:] == [True, False, True, False]


@pytest.mark.parametrize("gradients", [False, True])
def test_a_script_that_computes_no_gradients_is_not_waited_for(
    windows: OpenWindows, script: Script, gradients: bool
) -> None:
    for _ in range(3):
        with torch.set_grad_enabled(gradients):
            script.net(torch.ones(3, 2))
        assert windows.are_open() is gradients
        windows.batch_begins()
    assert not windows.are_open()


def test_a_step_that_is_compiled_counts(windows: OpenWindows, script: Script) -> None:
    step = torch.compile(script.optimizer.step, backend="eager")
    for _ in range(3):
        script.backward()
        step()
        assert not windows.are_open()
        windows.batch_begins()


def test_gradients_that_are_sparse(windows: OpenWindows) -> None:
    table = torch.nn.Embedding(4, 2, sparse=True)
    optimizer = torch.optim.SparseAdam(table.parameters(), lr=0.1)
    found = []
    for batch in range(6):
        table(torch.tensor([batch % 4])).sum().backward()
        if batch % 2:
            optimizer.step()
            optimizer.zero_grad()
        found.append(windows.are_open())
        windows.batch_begins()
    assert found == 3 * [True, False]


def test_it_keeps_no_optimiser_and_no_model_alive(windows: OpenWindows, script: Script) -> None:
    script.backward()
    script.optimizer.step()
    gone = weakref.ref(script.optimizer), weakref.ref(script.net.weight)
    del script.optimizer, script.net
    gc.collect()
    assert [each() for each in gone] == [None, None]
    assert not windows.are_open()


def test_it_watches_no_longer_when_it_is_closed(script: Script) -> None:
    windows = OpenWindows()
    windows.close()
    script.backward()
    script.optimizer.step()
    assert windows.are_open()
