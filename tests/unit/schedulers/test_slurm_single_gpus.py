"""Single GPUs of nodes on Slurm (`share: gpu`): which are ours, what their pilots get, and how few of them go
for a main job."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bftrainer.errors import NoRoomError
from bftrainer.model.machine import Pilot
from bftrainer.schedulers.slurm.pilot import PilotResources, command
from bftrainer.schedulers.slurm.queue.parts import USED_UP
from bftrainer.schedulers.slurm.queue.places import CLEARING, IN_USE, NO_GPUS, GpuPlaces, places
from bftrainer.schedulers.slurm.queue.resources import Remaining
from bftrainer.schedulers.slurm.queue.state import MOST_NODES
from bftrainer.schedulers.slurm.rows import SlurmJobRow, SlurmMachine
from bftrainer.schedulers.slurm.view import SlurmView
from tests.support.slurm_samples import PILOT_JOB
from tests.unit.schedulers.test_slurm_parts import HARVEST, gpus, main, mixed
from tests.unit.schedulers.test_slurm_view import NOW, machine, pilot, see, why

SINGLE = replace(HARVEST, gpus=True, preempting=True)
ONE = Remaining(1, 250, gpus(1))
N1, N2 = ([f"{node}:{i}" for i in range(4)] for node in ("n1", "n2"))
TAGS = dict(zip((*N1, *N2), "0123456789abcdef", strict=False))


def own(gpu: str, **others: object) -> SlurmJobRow:
    """A pilot of one GPU, with a core and a quarter of the memory; it runs."""
    node, _, number = gpu.partition(":")
    row = main(700 + len(TAGS) - int(TAGS[gpu], 16), 1, node)
    like = pilot(1, node, TAGS[gpu])
    change = {name: getattr(like, name) for name in ("user", "partitions", "required")}
    return replace(row, name=f"{like.name}:{number}", **{**change, **others})  # type: ignore[arg-type]


def waits(gpu: str, **others: object) -> SlurmJobRow:
    return own(gpu, **{"state": "PENDING", "nodes": (), **others})


def look(here: SlurmMachine, *jobs: SlurmJobRow) -> SlurmView:
    return see(here, *jobs, ours=SINGLE)


def claims(view: SlurmView) -> list[tuple[str, list[str], int]]:
    return [(claim.job, sorted(claim.nodes), claim.count) for claim in view.snapshot.claims]


def test_every_free_gpu_is_ours_with_its_part_of_the_node() -> None:
    view = look(mixed(n1=1), main(1, 1, "n1"))
    assert view.snapshot.idle == {*N1[:3], *N2}
    assert why(view)["n1:3"] == IN_USE
    assert {view.room(gpu).part for gpu in view.snapshot.idle} == {ONE}
    shown = {node.name: node for node in view.snapshot.nodes}
    assert (shown["n2:0"].gres, shown["n2:0"].gpus, shown["n2:0"].cpus) == ("gpu:a100:1", 1, 1)


def test_a_pilots_share_of_its_machine_is_that_of_its_cores() -> None:
    view = look(mixed(n1=1), main(1, 1, "n1"))
    assert view.room("n2:0").share == view.room("n1:0").share == 0.25
    one = {name: replace(row, hosts=("127.0.1.1", "vm")) for name, row in mixed(n1=1).nodes.items()}
    assert look(replace(mixed(n1=1), nodes=one)).room("n2:0").share == 0.125, "both nodes are one machine"
    whole = see(
        replace(
            machine(n1="IDLE", n2="IDLE"),
            nodes={**one, "n3": replace(one["n2"], name="n3", hosts=("b", "b"))},
        )
    )
    assert (whole.room("n2").share, whole.room("n3").share) == (0.5, 1.0)


def test_pilots_keep_their_gpus_and_the_others_make_room_for_main_jobs() -> None:
    here = mixed(n1=3), main(1, 1, "n1"), own("n1:1"), own("n1:3")
    view = look(*here)
    assert view.snapshot.idle - set(N2) == {"n1:0", "n1:1", "n1:3"}
    assert [p.node for p in view.snapshot.pilots] == ["n1:1", "n1:3"]
    assert view.room("n1:3").part == ONE, "another pilot may follow"


def test_a_pilot_that_waits_is_given_up_only_where_there_is_no_room_for_it() -> None:
    assert "n1:3" in look(mixed(n1=3), main(1, 3, "n1"), waits("n1:3")).snapshot.idle
    full = look(mixed(n1=4), main(1, 4, "n1"), waits("n1:3"))
    assert why(full)["n1:3"] == IN_USE
    large = look(mixed(n1=3), main(1, 3, "n1"), waits("n1:3", memory_mb=500))
    assert why(large)["n1:3"] != ""


def test_a_main_job_for_one_gpu_claims_one_of_all_that_would_do() -> None:
    view = look(mixed(n1=4, n2=4), *map(own, (*N1, *N2)), main(9, 1))
    assert claims(view) == [("9", sorted((*N1, *N2)), 1)]
    assert view.snapshot.idle == {*N1, *N2}


def test_a_small_main_job_claims_a_gpu_of_a_node_that_main_jobs_use_in_part() -> None:
    """So the other node can be had as a whole by a job that needs it."""
    here = mixed(n1=4, n2=4)
    view = look(here, *map(own, (*N1[:3], *N2)), main(1, 1, "n1"), main(9, 1))
    assert claims(view) == [("9", N1[:3], 1)]
    shown = {node.name: node.used for node in view.snapshot.nodes}
    assert (shown["n1:0"], shown["n2:0"]) == (0.25, 0.0)
    view = look(here, *map(own, (*N1[:3], *N2)), main(1, 1, "n1"), main(9, 4))
    assert claims(view) == [("9", N2, 4)]


@pytest.mark.parametrize(("running", "tasks"), [((), 4), ((main(1, 1, "n1"),), 3)])
def test_the_tasks_of_an_array_stay_together_where_the_first_finds_a_free_gpu(
    running: tuple[SlurmJobRow, ...], tasks: int
) -> None:
    """Seen on the testbed: one task ran beside our pilots and the others on another node, so that a job that
    needed a whole node waited."""
    here = mixed(n1=3 + len(running), n2=4)
    view = look(here, *running, *map(own, (*N1[1:], *N2)), main(9, 1, tasks=tasks))
    assert claims(view) == [("9", N1[first:], 1) for first in (1, 2, 3)]


@pytest.mark.parametrize(("held", "asked", "go"), [(4, 2, 2), (4, 4, 4), (3, 2, 1), (2, 2, 0)])
def test_just_enough_goes_for_a_main_job_that_needs_several_gpus_of_a_node(
    held: int, asked: int, go: int
) -> None:
    full = main(1, 4, "n2")
    view = look(mixed(n1=held, n2=4), *map(own, N1[:held]), full, main(9, asked))
    among = N1[:held]
    assert claims(view) == ([("9", among, go)] if go else [])


def test_cores_and_memory_that_pilots_have_count_as_well() -> None:
    full = main(1, 4, "n2")
    for need in ({"cpus": 3, "all_cpus": 3, "memory_mb": 0}, {"memory_mb": 750}):
        view = look(mixed(n1=4, n2=4), *map(own, N1), full, main(9, 1, **need))
        assert claims(view) == [("9", N1, 3)], need


def test_a_main_job_that_needs_a_whole_node_gets_all_of_one() -> None:
    view = look(mixed(n1=4, n2=4), *map(own, N1), main(1, 4, "n2"), main(9, 1, shares=False))
    assert claims(view) == [("9", N1, 4)]


def test_the_node_is_taken_on_which_fewest_pilots_go() -> None:
    here = *map(own, N1), *map(own, N2[:2]), main(1, 1, "n2")
    assert claims(look(mixed(n1=4, n2=3), *here, main(9, 2))) == [("9", N2[:2], 1)]


def test_a_main_job_of_two_nodes_gets_a_gpu_of_each() -> None:
    both = replace(main(9, 1), count=2, all_cpus=2)
    view = look(mixed(n1=4, n2=4), *map(own, (*N1, *N2)), both)
    assert claims(view) == [("9", N1, 1), ("9", N2, 1)]


def test_what_several_main_jobs_need_adds_up() -> None:
    view = look(mixed(n1=4, n2=4), *map(own, N1), main(1, 4, "n2"), main(8, 1), main(9, 2))
    assert sum(claim.count for claim in view.snapshot.claims) == 3
    assert set().union(*(claim.nodes for claim in view.snapshot.claims)) == set(N1)


def test_a_waiting_main_job_leaves_the_rest_of_an_idle_node_to_us() -> None:
    view = look(mixed(n2=4), main(9, 1), main(1, 4, "n2"))
    assert view.snapshot.claims == ()
    assert view.snapshot.idle == set(N1[:3])
    assert why(view)["n1:3"] == USED_UP
    assert not look(mixed(n2=4), main(9, 1, shares=False), main(1, 4, "n2")).snapshot.idle


def test_a_gpu_whose_pilot_is_being_cleared_away_is_no_other_pilots_yet() -> None:
    here = mixed(n1=1)
    rows = here.nodes | {"n1": replace(here.nodes["n1"], flags=frozenset({"COMPLETING"}))}
    view = look(replace(here, nodes=rows), own("n1:1", state="COMPLETING"), own("n1:0"))
    assert why(view)["n1:1"] == CLEARING
    assert {"n1:0", "n1:2", "n1:3"} <= view.snapshot.idle, "the node's other GPUs are no worse for it"


def test_types_are_kept_apart() -> None:
    found = mixed(n1=4, n2=4)
    kinds = (("a100", 2), ("v100", 2))
    rows = found.nodes | {"n1": replace(found.nodes["n1"], gpus=kinds, gpus_used=kinds)}
    held = [own(gpu, gpus=((("a100", "v100")[i // 2], 1),)) for i, gpu in enumerate(N1)]
    full = main(1, 4, "n2")
    view = look(replace(found, nodes=rows), *held, full, main(9, 1, gpus=(("v100", 1),)))
    assert claims(view) == [("9", N1[2:], 1)]
    assert [node.gres for node in view.snapshot.nodes[:4]] == ["gpu:a100:1"] * 2 + ["gpu:v100:1"] * 2
    types = [node.types for node in view.snapshot.nodes[:4]]
    assert types == [("a100",)] * 2 + [("v100",)] * 2


@pytest.mark.parametrize(
    ("cpus", "threads", "count", "each"),
    [(20, 2, 3, 6), (20, 1, 3, 6), (40, 2, 3, 12), (39, 1, 3, 13), (6, 2, 3, 2), (4, 2, 2, 2)],
)
def test_pilots_get_whole_cores(cpus: int, threads: int, count: int, each: int) -> None:
    """Slurm rounds what a job asks for up to whole cores: with an odd number the last one finds too few."""
    free = Remaining(cpus, 4000, gpus(3))
    row = replace(mixed().nodes["n1"], cpus=cpus, memory_mb=4000, gpus=gpus(3), threads=threads)
    here = GpuPlaces(free=free, held={}, waiting={}, cleared=(), why="", shut="")
    found = [place.part for place in places(row, here) if place.part is not None]
    assert [part.cpus for part in found] == [each] * count


def test_one_of_many_nodes_is_enough_to_name() -> None:
    """Thousands of main jobs may wait, and each poll names what of ours each could use."""
    nodes = [f"m{number}" for number in range(200)]
    kinds = gpus(4)
    row = replace(mixed().nodes["n1"], base="MIXED", cpus_used=4, memory_used_mb=1000)
    rows = {name: replace(row, name=name, gpus=kinds, gpus_used=kinds) for name in nodes}
    held = [
        replace(
            own("n1:0"),
            name=f"bftrainer-0a1b2c3d-{4 * i + number:032x}:{number}",
            id=str(7000 + 4 * i + number),
            nodes=(name,),
            required=name,
        )
        for i, name in enumerate(nodes)
        for number in range(4)
    ]
    jobs = [main(number, 1) for number in range(1, 300)]
    view = look(replace(mixed(), nodes=rows), *held, *jobs)
    assert [claim.count for claim in view.snapshot.claims] == [1] * len(jobs)
    assert {len(claim.nodes) for claim in view.snapshot.claims} <= set(range(1, 4 * (MOST_NODES + 1) + 1))


def test_a_drained_node_is_given_up_and_one_without_gpus_is_none() -> None:
    found = mixed(n1=1)
    rows = found.nodes | {"n1": replace(found.nodes["n1"], flags=frozenset({"DRAIN"}))}
    assert set(why(look(replace(found, nodes=rows), own("n1:0"))).values()) == {"drain", ""}
    bare = look(machine(n1="IDLE"))
    assert (bare.snapshot.nodes, bare.parts) == ((), {})
    assert NO_GPUS.startswith("it has no GPUs")


def test_no_further_pilot_goes_where_slurm_plans_a_job_soon() -> None:
    planned = main(9, 4, shares=False, planned=("n1",), start=NOW + 20, reason="Licenses")
    view = look(mixed(n1=1), own("n1:0"), planned)
    until = {node.name: node.until for node in view.snapshot.nodes}
    assert until["n1:0"] == NOW + 20
    shared = replace(planned, shares=True)
    assert {n.until for n in look(mixed(n1=1), own("n1:0"), shared).snapshot.nodes} == {None}


def test_a_pilot_asks_for_its_gpu_and_for_nothing_else() -> None:
    job = replace(PILOT_JOB, gpus=True)
    gpu = Pilot(tag="a" * 32, node="n1:2")
    words = command(job, gpu, None, PilotResources(part=Remaining(8, 4000, (("a100", 1),))))
    assert "--exclusive" not in words
    assert {"--nodelist=n1", "--gres=gpu:a100:1", "--cpus-per-task=8", "--mem=4000M"} <= set(words)
    assert f"--job-name=bftrainer-0a1b2c3d-{'a' * 32}:2" in words
    with pytest.raises(NoRoomError, match="n1:2: no such GPU is known to be free"):
        command(job, gpu, None, PilotResources())


@pytest.mark.parametrize("name", ["x", "", "2:3", "-1", "12345", "2x", "../n2"])
def test_a_job_that_is_named_oddly_is_no_pilot(name: str) -> None:
    odd = own("n1:0")
    odd = replace(odd, name=f"{odd.name.partition(':')[0]}:{name}")
    assert look(mixed(n1=1), odd).snapshot.pilots == ()
