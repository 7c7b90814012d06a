"""GPUs of nodes and jobs, by their types."""

from __future__ import annotations

import pytest

from bftrainer.schedulers.slurm.queue.gpus import Kinds, covers, kinds, option, total, without


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", ()),
        ("gpu:4", (("", 4),)),
        ("gpu:a100:4(S:0-1),nvme:1", (("a100", 4),)),
        ("gpu:a100:2(S:0,2),gpu:v100:1", (("a100", 2), ("v100", 1))),
        ("gpu:a100:2(IDX:0,2),gpu:v100:0(IDX:N/A)", (("a100", 2),)),
        ("gpu:1g.5gb:7", (("1g.5gb", 7),)),
        ("gres:gpu:2", (("", 2),)),
        ("gres:gpu:h100:2", (("h100", 2),)),
        ("cpu=4,mem=1G,gres/gpu=8,gres/gpu:h100=8", (("h100", 8),)),
        ("cpu=4,gres/gpu=8", (("", 8),)),
        ("gpu", (("", 1),)),
        ("gpu:a100", (("a100", 1),)),
        ("gpu:2K", (("", 2048),)),
        ("gpumem:80G,shard:8", ()),
    ],
)
def test_what_slurm_lists(text: str, found: Kinds) -> None:
    assert kinds(text) == found


TWO = (("a100", 2), ("v100", 1))


@pytest.mark.parametrize(
    ("wanted", "enough"),
    [
        ((), True),
        ((("", 3),), True),
        ((("", 4),), False),
        ((("v100", 2),), False),
        ((("a100", 2), ("", 1)), True),
    ],
)
def test_a_job_gets_the_types_that_it_names(wanted: Kinds, enough: bool) -> None:
    assert covers(TWO, wanted) is enough


def test_what_jobs_leave() -> None:
    assert without(TWO, (("a100", 1),)) == (("a100", 1), ("v100", 1))
    assert without(TWO, (("", 2),)) == (("v100", 1),)
    assert without(TWO, (("", 999_999_999),)) == ()
    assert without((("", 4),), (("a100", 3),)) == (("", 1),), "the node has GPUs without types"
    assert total(without(TWO, (("a100", 2), ("", 1)))) == 0


def test_what_sbatch_is_asked_for() -> None:
    assert option(TWO) == "gpu:a100:2,gpu:v100:1"
    assert option((("", 4),)) == "gpu:4"
    assert option(()) == ""
