"""GPUs that jobs ask for in all, for each socket or for each task."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bftrainer.schedulers.slurm.queue.gpus import Kinds
from bftrainer.schedulers.slurm.queue.requests import AskedGpus, completed, requests, spread, squeue_format
from tests.support.slurm_samples import MAIN_JOB, MARK
from tests.unit.schedulers.test_slurm_parts import A100
from tests.unit.schedulers.test_slurm_walk import ask, job, nodes_of

PRINTED = f"""\
14|{MARK}|gres:gpu:1|N/A|N/A|*:*:*|1|
15|{MARK}|N/A|N/A|gres:gpu:1|*:*:*|2|
16_[1-5%3]|{MARK}|N/A|gres:gpu:2|N/A|2:*:*|1|
17|{MARK}|N/A|N/A|N/A|*:*:*|4|
18|{MARK}|gres:gpu:a100
14|0123|gres:gpu:9|1|1|
""".replace("|", "\x1f").encode()  # 18: what a user wrote as a type of GPUs


def test_what_squeue_prints_in_its_long_format() -> None:
    assert requests(PRINTED, MARK) == {
        "14": AskedGpus("gres:gpu:1", "", "", 1, 1),
        "15": AskedGpus("", "", "gres:gpu:1", 1, 2),
        "16": AskedGpus("", "gres:gpu:2", "", 2, 1),
    }
    assert squeue_format(MARK).startswith(f"JobArrayID:\x1f{MARK}\x1f,tres-per-job:\x1f,")


@pytest.mark.parametrize(
    ("request_", "count", "each", "in_all"),
    [
        (AskedGpus("gres:gpu:1", "", "", 1, 1), 1, (("", 1),), (("", 1),)),
        (AskedGpus("gres/gpu:a100=5", "", "", 1, 1), 2, (("a100", 3),), (("a100", 5),)),
        (AskedGpus("", "gres:gpu:2", "", 2, 1), 1, (("", 4),), ()),
        (AskedGpus("", "", "gres:gpu:1", 1, 4), 2, (("", 2),), ()),
        (AskedGpus("gres:gpu:4", "", "gres:gpu:1", 1, 4), 1, (("", 4),), ()),
    ],
)
def test_what_a_job_needs_of_each_node(request_: AskedGpus, count: int, each: Kinds, in_all: Kinds) -> None:
    (found,) = completed([replace(MAIN_JOB, count=count)], {MAIN_JOB.id: request_})
    assert (found.gpus, found.all_gpus) == (each, in_all)


def test_what_a_job_asks_for_by_node_counts_first() -> None:
    asked = replace(MAIN_JOB, gpus=(("", 2),))
    assert completed([asked], {asked.id: AskedGpus("gres:gpu:4", "", "", 1, 1)}) == (asked,)
    task = AskedGpus("", "", "gres:shard:2", 1, 3)
    assert completed([MAIN_JOB], {MAIN_JOB.id: task})[0].gpu_parts == (("shard", "", 6),)


def test_gpus_in_all_may_come_from_more_nodes_than_the_job_names() -> None:
    wide = job(1, gpus=(("", 8),), all_gpus=(("", 8),), shares=True)
    assert [(one.count, one.gpus[0][1]) for one in spread(wide, 9)] == [
        (1, 8),
        (2, 4),
        (3, 3),
        (4, 2),
        (8, 1),
    ]
    assert [one.count for one in spread(wide, 3)] == [1, 2, 3]
    four = {"gpus": A100}
    found = ask([wide], n1=four, n3=four)
    assert nodes_of(found) == {"1": ["n1", "n3"]} and [claim.count for claim in found.claims] == [2]
    assert nodes_of(ask([replace(wide, gpus=(("", 4),), all_gpus=(("", 4),))], n1=four)) == {"1": ["n1"]}
