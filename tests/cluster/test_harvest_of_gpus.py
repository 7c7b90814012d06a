"""`harvest: gpus` on a real Slurm: a trainer has the GPUs that main jobs leave free, and gives them up."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from slurm.testbed import Testbed
from tests.cluster.test_parts_of_nodes import gpus_of, main, state
from tests.cluster.test_workers_on_gpu_nodes import seats
from tests.support.slurm_site import SlurmSite

LONG_S = 240.0


@pytest.fixture
def site() -> Iterator[SlurmSite]:
    with Testbed(nodes=2, shared=True, parts=True, gres={"n[1-2]": "gpu:a100:4"}) as bed:
        site = SlurmSite(bed, harvest="gpus")
        try:
            yield site
        finally:
            site.close()
            bed.run(["scancel", "-p", "batch"], check=False)


def test_a_trainer_has_what_main_jobs_leave_and_a_main_job_takes_a_gpu_of_it(site: SlurmSite) -> None:
    bed = site.bed
    first = main(bed, "--nodelist=n1", "--gres=gpu:2")
    site.until(lambda: state(bed, first) == "RUNNING", LONG_S, "the main job runs")
    site.start()
    where = site.root / "seats"
    where.mkdir()
    site.submit("t", "seat.py", str(where), nodes={"min": 1, "max": 2, "workers": "auto"}, samples=10**7)
    site.until(lambda: len(seats(where, 6)) == 6, LONG_S, "two workers train on n1, and four on n2")
    found = seats(where, 6)
    sizes = {
        seat["local"][1]: {own["device"] for own in found if own["local"][1] == seat["local"][1]}
        for seat in found
    }
    free = {str(number) for number in {0, 1, 2, 3} - gpus_of(bed, first)}
    assert sizes == {2: free, 4: {"0", "1", "2", "3"}}, "n1 has two for us, none of them the main job's"

    second = main(bed, "--nodelist=n1", "--gres=gpu:1")
    site.until(lambda: state(bed, second) == "RUNNING", LONG_S, "a main job has a GPU of ours")
    site.until(lambda: len(seats(where, 5)) == 5, LONG_S, "one worker trains on n1, where one GPU is left")
    (alone,) = (seat for seat in seats(where, 5) if seat["local"] == [0, 1])
    assert int(alone["device"]) not in gpus_of(bed, first) | gpus_of(bed, second)
    assert {state(bed, first), state(bed, second)} == {"RUNNING"}, "no main job was disturbed"
