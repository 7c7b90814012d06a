"""Parts of GPUs (shard, mps): a GPU in use by one name is in use by all."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bftrainer.schedulers.slurm import text
from bftrainer.schedulers.slurm.queue.constraints import ANY
from bftrainer.schedulers.slurm.queue.fit import NodeFit
from bftrainer.schedulers.slurm.queue.gpus import Parts, after, opened, sizes
from bftrainer.schedulers.slurm.queue.parts import part_of
from bftrainer.schedulers.slurm.queue.resources import Remaining, left_of, less, together
from bftrainer.schedulers.slurm.rows import NodeRow, Partition, SlurmJobRow
from tests.support.slurm_samples import MAIN_JOB
from tests.unit.schedulers.test_slurm_parts import main, mixed
from tests.unit.schedulers.test_slurm_single_gpus import N1, claims, look, own

GRES = "gpu:a100:4(S:0-1),shard:a100:16(S:0-1)"
LINE = (
    "NodeName=n1 CPUAlloc=4 CPUTot=64 ActiveFeatures=(null) Gres={gres} GresUsed={used} NodeAddr=n1 "
    "NodeHostName=n1 RealMemory=512000 AllocMem=16000 State=MIXED ThreadsPerCore=1 Partitions=batch,backfill "
)
AROUND = "PartitionName=batch PriorityTier=1 State=UP Default=YES\nNo reservations in the system\n"


def node(gres: str, used: str) -> NodeRow:
    return text.machine(f"{LINE.format(gres=gres, used=used)}\n{AROUND}").nodes["n1"]


@pytest.mark.parametrize(
    ("gres", "used", "free"),
    [
        (GRES, "gpu:a100:0(IDX:N/A),shard:a100:3(3/4,0/4,0/4,0/4)", (("a100", 3),)),
        (GRES, "gpu:a100:0(IDX:N/A),shard:a100:5(4/4,0/4,1/4,0/4)", (("a100", 2),)),
        (GRES, "gpu:a100:1(IDX:3),shard:a100:1(1/4,0/4,0/4,0/4)", (("a100", 2),)),
        (GRES, "gpu:a100:0(IDX:N/A),shard:a100:1(IDX:0)", (("a100", 3),)),
        (GRES, "gpu:a100:0(IDX:N/A),shard:a100:5(IDX:0-1,3)", (("a100", 1),)),
        (GRES, "gpu:a100:0(IDX:N/A),shard:a100:0(IDX:N/A)", (("a100", 4),)),
        ("gpu:a100:4,shard:16", "gpu:a100:0(IDX:N/A),shard:5", (("a100", 2),)),
        ("gpu:4,mps:400", "gpu:0,mps:50(50/100,0/100,0/100,0/100)", (("", 3),)),
        ("gpu:4,mps:400", "gpu:0,mps:150(IDX:0,2)", (("", 2),)),
        ("gpu:a:2,gpu:v:2,shard:v:8", "gpu:a:1(IDX:0),shard:v:1(1/4,0/4)", (("a", 1), ("v", 1))),
        ("gpu:1g.5gb:7(S:0)", "gpu:1g.5gb:2(IDX:0,3)", (("1g.5gb", 5),)),
    ],
)  # fmt: skip
def test_a_gpu_of_which_a_job_has_parts_is_not_free(gres: str, used: str, free: object) -> None:
    assert left_of(node(gres, used)).gpus == free


def test_used_parts_as_allocated_resources_have_them() -> None:
    parts = sizes("gpu:a100:4,shard:a100:16")
    assert parts == (("shard", "a100", 4),)
    assert opened("cpu=4,gres/shard=6,gres/shard:a100=6", parts) == (
        ("shard", "a100", 1),
        ("shard", "a100", 1),
    )
    assert opened("cpu=4,gres/shard=6", parts) == (("shard", "", 1), ("shard", "", 1))


SIZE: Parts = (("shard", "a100", 4),)


@pytest.mark.parametrize(
    ("open_", "asked", "whole", "then"),
    [
        ((("shard", "a100", 3), ("shard", "a100", 1)), 1, 2, (3, 0)),
        ((("shard", "a100", 3),), 4, 1, (3, 0)),
        ((), 2, 1, (2,)),
        ((), 6, 0, (0, 2)),
    ],
)
def test_a_job_takes_parts_of_the_gpu_that_has_least_left(
    open_: Parts, asked: int, whole: int, then: tuple[int, ...]
) -> None:
    found = after((("a100", 2),), open_, SIZE, (("shard", "", asked),))
    assert found is not None
    assert sum(count for _, count in found[0]) == whole
    assert tuple(left for _, _, left in found[1]) == then


def test_no_part_of_what_is_not_there() -> None:
    assert after((("a100", 2),), (), SIZE, (("shard", "v100", 1),)) is None
    assert after((("a100", 2),), (), SIZE, (("mps", "", 1),)) is None
    assert after((), (("shard", "a100", 1),), SIZE, (("shard", "", 2),)) is None


def test_a_pilot_gets_the_gpus_of_which_nobody_has_a_part() -> None:
    row = node(GRES, "gpu:a100:0(IDX:N/A),shard:a100:3(3/4,0/4,0/4,0/4)")
    assert part_of(row, left_of(row)) == Remaining(48, 384_000, (("a100", 3),))


def wants(number: int, parts: Parts) -> SlurmJobRow:
    return replace(main(number, 0), shares=True, cpus=1, gpu_parts=parts)


def test_main_jobs_that_ask_for_parts_claim_a_gpu_between_them() -> None:
    here = mixed(n1=4)
    here = replace(here, nodes={"n1": replace(here.nodes["n1"], gpu_parts=SIZE, cpus=64)})
    pilots = [own(gpu) for gpu in N1]
    one = (("shard", "", 1),)
    assert claims(look(here, *pilots, wants(1, one))) == [("1", N1, 1)]
    found = claims(look(here, *pilots, *(wants(number, one) for number in range(1, 6))))
    assert [count for _, _, count in found] == [1, 1], "four share a GPU"
    assert not claims(look(here, *pilots, wants(1, (("mps", "", 1),)))), "which no node has"


def test_of_a_node_that_is_left_in_parts_those_are_taken_first() -> None:
    room = Remaining(8, 8000, (("a100", 1),), (("shard", "a100", 2),), SIZE)
    job = replace(MAIN_JOB, shares=True, cpus=1, gpu_parts=(("shard", "a100", 2),))
    rest = less(room, job, 1)
    assert rest.gpus == (("a100", 1),) and rest.fits(job)
    assert not less(less(rest, job, 1), job, 1).gpus and not less(less(rest, job, 1), job, 1).fits(job)
    assert together(Remaining(1, 1, (("a100", 1),)), Remaining(0, 0, (), (), SIZE)).fits(job)


def test_jobs_that_ask_for_parts_fit_on_other_nodes_than_those_that_ask_for_none() -> None:
    rows = {"n1": node(GRES, "gpu:a100:0"), "n2": replace(node("gpu:a100:4", "gpu:a100:0"), name="n2")}
    fit = NodeFit(rows, {"batch": Partition("batch", 1, up=True, default=True, max_s=None)})
    plain = replace(MAIN_JOB, partitions=("batch",))
    assert fit.nodes(plain, ANY) == {"n1", "n2"}
    assert fit.nodes(replace(plain, gpu_parts=(("shard", "a100", 1),)), ANY) == {"n1"}
