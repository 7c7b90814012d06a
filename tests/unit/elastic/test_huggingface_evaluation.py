"""Hugging Face's evaluations: each sample counts once on any number of nodes, or it is told."""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip("transformers")
evaluation = importlib.import_module("bftrainer.elastic.frameworks.huggingface.evaluation")


def two_ranks(remainder: int, *, is_last: bool = True) -> Any:
    """Accelerate on two ranks with batches of 4, of whose samples the last ones are `remainder`."""
    state = SimpleNamespace(
        end_of_dataloader=is_last,
        remainder=remainder,
        active_dataloader=SimpleNamespace(total_batch_size=8),
    )
    return SimpleNamespace(
        num_processes=2, is_main_process=True, gradient_state=state, gather=lambda given: given
    )


@pytest.mark.parametrize(
    ("rows", "remainder", "is_last", "left"),
    [
        (8, 5, True, [0, 1, 2, 3, 4]),
        (16, 3, True, [0, 1, 2, 3, 4, 5]),  # two sequences of each sample
        (8, 0, True, [*range(8)]),
        (8, -1, True, [*range(8)]),  # of a stream, whose length is not known
        (8, 5, False, [*range(8)]),
    ],
)
def test_rows_that_fill_the_last_batches_up_are_left_out(
    rows: int, remainder: int, is_last: bool, left: list[int]
) -> None:
    found = evaluation.gathered(two_ranks(remainder, is_last=is_last), {"ids": torch.arange(rows)})
    assert found["ids"].tolist() == left


class Evaluates:
    """A Trainer of which only the loop of an evaluation is known."""

    def __init__(self, *, gathers_all: bool) -> None:
        self.accelerator = two_ranks(5)
        self.own = lambda given: given
        self.gather_function = self.accelerator.gather if gathers_all else self.own
        self.args = SimpleNamespace(per_device_eval_batch_size=4)

    def compute_loss(self) -> None:
        """One of the script's own."""

    def evaluation_loop(self, dataloader: Any, description: str) -> list[int]:
        """What is gathered of two ranks' last batches."""
        rows: list[int] = self.gather_function(torch.arange(8)).tolist()
        return rows


def test_a_trainer_that_gathers_all_leaves_out_what_was_filled_up(capsys: pytest.CaptureFixture[str]) -> None:
    for gathers_all, rows in ((True, [*range(5)]), (False, [*range(8)])):
        trainer: Any = Evaluates(gathers_all=gathers_all)
        evaluation.make_even(trainer)
        for _ in range(2):
            loader = SimpleNamespace(dataset=range(13))
            assert trainer.evaluation_loop(loader, description="Evaluation") == rows
    assert capsys.readouterr().err.count("13 samples in batches of 4 ends with one of 1, which") == 2


def test_batches_that_are_all_full_are_not_told() -> None:
    assert not evaluation.filled_up(12, 4)
    assert not evaluation.filled_up(None, 4)
