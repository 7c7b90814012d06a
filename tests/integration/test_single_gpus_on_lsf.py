"""`share: gpu` on an emulated LSF: trainers share a host's GPUs, each with a pilot, and a main job that needs
the host gets it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lsf.emulator import sites
from lsf.emulator.emulator import Emulator
from tests.support.lsf_site import LsfSite
from tests.support.studies import HALVES, assert_halved, submit_scored
from tests.support.waiting import LONG_S

GPUS = 3


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    """As real ones do, it preempts no pilot that has asked for GPUs."""
    with Emulator(site=sites.small(2, slots=7, gpus=GPUS), cycle_s=0.2) as found:
        yield found


def shared(emulator: Emulator, **more: object) -> LsfSite:
    return LsfSite(emulator, share="gpu", gpus_per_node=GPUS, **more)


def seats(where: Path, size: int) -> list[str]:
    """The devices of the workers that a membership of this size has noted."""
    return [json.loads(note.read_text())["device"] for note in where.glob(f"*-{size}-*.json")]


def in_use(emulator: Emulator) -> list[str]:
    """How many jobs have each GPU, as LSF says."""
    rows = emulator.run("bhosts", "-gpu", "-w").stdout.splitlines()[1:]
    return [row.split()[-3] for row in rows]


def submit(site: LsfSite, name: str, script: str, gpus: int) -> Path:
    where = site.root / name
    where.mkdir()
    asked: dict[str, Any] = {"nodes": None, "gpus": {"min": gpus, "max": gpus}, "n_max": gpus}
    site.submit(name, script, str(where), samples=10**7, **asked)
    return where


def test_two_trainers_share_a_host_until_a_main_job_needs_it(emulator: Emulator) -> None:
    site = shared(emulator)
    try:
        site.start()
        one, two = (submit(site, name, "seat.py", 1) for name in ("one", "two"))
        submit(site, "all", "steady.py", GPUS)
        site.until(lambda: seats(one, 1) and seats(two, 1), LONG_S, "two train")
        site.until(lambda: len(site.trainer("all")["members"]) == GPUS, LONG_S, "the third has a whole host")
        (left, right) = (site.trainer(name)["members"][0].partition(":")[0] for name in ("one", "two"))
        assert left == right, "they share a host"
        assert len({*seats(one, 1), *seats(two, 1)}) == 2, "each has a device of its own"
        assert sorted(in_use(emulator)) == ["0"] + ["1"] * 5, "each GPU has one pilot"
        rest = {job["id"] for job in site.pilots() if job["hosts"] != [left]}
        assert len(rest) == GPUS

        main = emulator.main_job(seconds=600.0)
        site.until(lambda: state(emulator, main)["state"] == "RUN", LONG_S, "the main job has a host")
        assert state(emulator, main)["hosts"] == [left], "that on which fewest pilots ended"
        site.until(lambda: {job["id"] for job in site.pilots()} == rest, LONG_S, "only the others are left")
        site.until(lambda: reasons(site, left) == [f"job {main}"] * GPUS, LONG_S, "a poll has shown that")
        assert len(site.trainer("all")["members"]) == GPUS, "it went on"
        ends = {job["why"] for job in emulator.jobs() if job["state"] in ("DONE", "EXIT")}
        assert ends <= {"", "TERM_OWNER"}, "the daemon has told them to end"
    finally:
        site.close()


def reasons(site: LsfSite, host: str) -> list[str]:
    """Why each GPU of a host is not ours."""
    return [row["why"] for row in site.get("pool")["nodes"] if row["node"].startswith(f"{host}:")]


def state(emulator: Emulator, job: int) -> dict[str, Any]:
    return next(found for found in emulator.jobs() if found["id"] == job)


@pytest.mark.nightly  # studies and single GPUs on LSF have a test each
def test_a_study_halves_to_its_end_on_the_gpus_of_a_host() -> None:
    with Emulator(site=sites.small(1, slots=5, gpus=2), cycle_s=0.2) as emulator:
        site = shared(emulator)
        try:
            site.start()
            trainer = {"nodes": None, "gpus": {"min": 1, "max": 1}, "curve": [[1, 100]]}
            submit_scored(site, "halves", trials=2, trainer=trainer, **HALVES)
            assert_halved(site)
            assert site.get("studies/halves")["unit"] == "GPU"
        finally:
            site.close()
