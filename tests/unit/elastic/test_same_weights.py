"""Ranks of a framework's training whose weights have come apart are found out, with what is apart."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import distributed as dist
from torch.multiprocessing.spawn import start_processes

from bftrainer.elastic.attach.job import Job
from bftrainer.elastic.frameworks import replica_check
from bftrainer.elastic.frameworks.replica_check import EVERY, SOON, SameWeights
from bftrainer.elastic.process import warnings
from bftrainer.messages import lightning, ranks


def test_ranks_are_compared_soon_after_the_start_and_then_now_and_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared: list[int] = []
    same, model = SameWeights(lightning.WEIGHTS_APART), torch.nn.Linear(1, 1)
    monkeypatch.setattr(same, "compare", lambda _: compared.append(same._steps))
    for _ in range(2 * EVERY):
        same.after_step(model)
    assert compared == [*SOON, EVERY, 2 * EVERY]


def test_a_process_alone_has_nothing_to_compare() -> None:
    SameWeights(lightning.WEIGHTS_APART).compare(torch.nn.Linear(1, 1))


def test_two_ranks_say_what_is_apart(tmp_path: Path) -> None:
    start_processes(rank, (str(tmp_path),), nprocs=2, start_method="spawn")
    first, second = (json.loads((tmp_path / f"{number}.json").read_text()) for number in range(2))
    assert first["same"] == second["same"] == "nothing is said"
    assert first["statistics"] == second["statistics"] == "nothing is said"
    assert first["rounding"] == second["rounding"] == "nothing is said"
    words = "the ranks do not have the same weights any more: 0.bias is 1 on rank 0, 2 on rank 1. "
    assert first["weights"].startswith(words) and "manual_backward" in first["weights"]
    assert first["weights"] == second["weights"], "all ranks end at once"
    assert (
        first["job"]
        == second["job"]
        == ranks.WEIGHTS_APART.say(difference=words.partition(": ")[2].removesuffix(". "))
    )
    assert first["buffer"].startswith(
        "a buffer follows each rank's own samples: seen is 1 on rank 0, 2 on rank 1"
    )
    assert second["buffer"] == "nothing is said", "rank 0 tells it"


def rank(number: int, folder: str) -> None:
    """One of two processes: tries every case, and writes down what it is told."""
    store = dist.FileStore(f"{folder}/store", 2)
    dist.init_process_group("gloo", store=store, rank=number, world_size=2)
    replica_check.note_warning = warnings._keep  # type: ignore[attr-defined]  # its log is the test's
    found = {
        case: said(case, number) for case in ("same", "statistics", "rounding", "weights", "job", "buffer")
    }
    Path(folder, f"{number}.json").write_text(json.dumps(found))
    os._exit(0)  # PyTorch 2.6's destroy_process_group may wait for a thread that needs the GIL it holds


def said(case: str, number: int) -> str:
    """What a rank is told of a model that differs in a way."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(2, 1), torch.nn.BatchNorm1d(1))
    model.register_buffer("seen", torch.ones(1))
    own = SimpleNamespace(
        bias=model[0].bias, statistics=model[1].running_mean, buffer=model.get_buffer("seen")
    )
    with torch.no_grad():
        match case:
            case "weights" | "job":
                own.bias.fill_(1.0 + number)
            case "rounding":
                own.bias.mul_(1 + 1e-7 * number)
            case "statistics":
                own.statistics.fill_(number)
            case "buffer":
                own.buffer.fill_(1.0 + number)
    warnings._last.clear()
    same = SameWeights(lightning.WEIGHTS_APART)
    try:
        if case == "job":
            Job(None).compare(model)
        same.compare(model)
        same.compare(model)
    except ValueError as error:
        return str(error)
    return "; ".join(warnings.last()) or "nothing is said"
