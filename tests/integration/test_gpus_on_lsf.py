"""A daemon on an emulated LSF whose hosts have GPUs: a worker for each."""

from __future__ import annotations

import pytest

from bftrainer.schedulers.shared import pilot_job
from lsf.emulator import sites
from lsf.emulator.emulator import Emulator
from tests.support.lsf_site import LsfSite
from tests.support.waiting import LONG_S


@pytest.mark.parametrize("mode", ["easy", "expert"])
def test_a_pilot_in_the_modes_of_summit_runs_a_worker_for_each_gpu(mode: str) -> None:
    """bhosts -gpu says how many there are, the script asks jsrun for them, and the agent finds them, wherever
    LSF has put it."""
    with Emulator(site=sites.small(2, gpus=2, launch=1), cycle_s=0.5) as emulator:
        site = LsfSite(
            emulator,
            lsf_submission=mode,
            lsf_launch_slots=1,
            lsf_select="select[CN]",
            pilot_template=pilot_job.find("summit-pilot.sh.j2"),
        )
        try:
            site.start()
            where = site.root / "seats"
            where.mkdir()
            nodes = {"min": 1, "max": 1, "workers": "auto"}
            site.submit("a", "seat.py", str(where), nodes=nodes)
            site.until(lambda: list(where.glob("*-2-*.json")), LONG_S, "two workers train")
            held = [row for row in site.get("pool")["nodes"] if row["devices"]]
            assert [row["devices"] for row in held] == ["2 cuda"]
            assert {row["gpus"] for row in site.get("pool")["nodes"]} == {2}
        finally:
            site.close()
