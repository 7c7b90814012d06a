"""The LSF scheduler on an emulated LSF that behaves badly, as real ones do at times."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from bftrainer.errors import SchedulerError, UnsureError
from bftrainer.model.machine import Pilot, Snapshot
from bftrainer.schedulers.lsf.commands import Form
from bftrainer.schedulers.lsf.scheduler import LsfScheduler
from lsf.emulator import sites
from lsf.emulator.core.model import OnPreempt
from lsf.emulator.emulator import Emulator
from lsf.emulator.manners import Manners
from tests.support.lsf_schedulers import lsf_scheduler

DAY_S = 86_400.0
LONG_S = 60.0
PILOT = Pilot(tag="0123abcd" * 4, node="h1")


def told(
    emulator: Emulator,
    folder: Path,
    story: Callable[[LsfScheduler], Coroutine[Any, Any, None]],
    **others: Any,
) -> None:
    """Run a story on a scheduler of the emulator."""

    async def whole() -> None:
        made = lsf_scheduler(folder, emulator.bin, emulator.env, **others)
        try:
            await story(made)
        finally:
            await made.close()

    asyncio.run(whole())


async def until(made: LsfScheduler, condition: Callable[[Snapshot], bool]) -> Snapshot:
    deadline = time.monotonic() + LONG_S
    while True:
        snapshot = await made.poll()
        if condition(snapshot):
            return snapshot
        assert time.monotonic() < deadline, snapshot
        await asyncio.sleep(0.05)


def runs(snapshot: Snapshot) -> bool:
    return [pilot.pending for pilot in snapshot.pilots] == [""]


@pytest.mark.parametrize("form", list(Form))
@pytest.mark.parametrize(
    "manners",
    [
        Manners(long_times=True, short_hosts=True),
        Manners(padded_hosts=True),
        Manners(bjobs_code=255),
        Manners(consistent_exit=True, disjoint=True),
        Manners(no_windows=True),
    ],
    ids=["long", "padded", "code", "exit", "no-windows"],
)
def test_whatever_the_form_of_the_answers_a_pilot_comes_and_goes(
    manners: Manners, form: Form, tmp_path: Path
) -> None:
    async def story(made: LsfScheduler) -> None:
        assert (await made.poll()).idle == {"h1", "h2"}
        await made.submit(PILOT, "secret")
        assert (await until(made, runs)).idle == {"h1", "h2"}
        await made.cancel([PILOT])
        await until(made, lambda snapshot: not snapshot.pilots)

    with Emulator(hosts=2, cycle_s=0.2, manners=manners) as emulator:
        told(emulator, tmp_path, story, form=form)


def test_launch_hosts_belong_to_no_job(tmp_path: Path) -> None:
    site = sites.summit(2)
    pilot = Pilot(tag=PILOT.tag, node="a01n01")

    async def story(made: LsfScheduler) -> None:
        assert (await made.poll()).idle == {"a01n01", "a01n02"}
        await made.submit(pilot, "secret")
        snapshot = await until(made, runs)
        assert [one.node for one in snapshot.pilots] == ["a01n01"]
        assert snapshot.idle == {"a01n01", "a01n02"}
        await made.cancel([pilot])
        await until(made, lambda snapshot: not snapshot.pilots)

    with Emulator(site=site, cycle_s=0.2) as emulator:
        told(emulator, tmp_path, story, submission="expert", launch_slots=1)


def test_a_pilot_that_one_answer_lacks_has_not_ended(tmp_path: Path) -> None:
    with Emulator(hosts=2, cycle_s=0.2) as emulator:

        async def story(made: LsfScheduler) -> None:
            await made.poll()
            await made.submit(PILOT, "secret")
            await until(made, runs)
            emulator.manners(missing=1)
            snapshot = await made.poll()
            assert runs(snapshot)
            assert "h1" in snapshot.idle
            assert runs(await made.poll())

        told(emulator, tmp_path, story)


def test_lsf_that_is_down_is_no_empty_machine(tmp_path: Path) -> None:
    with Emulator(hosts=2, cycle_s=0.2) as emulator:

        async def story(made: LsfScheduler) -> None:
            await made.poll()
            begin = time.monotonic()
            emulator.manners(hang=True)
            with pytest.raises(SchedulerError, match="LSF does not answer"):
                await made.poll()
            assert time.monotonic() - begin < 15, "a question that will not be answered ends at once"
            emulator.manners(hang=False)
            assert (await made.poll()).idle == {"h1", "h2"}

        told(emulator, tmp_path, story)


def test_a_pilot_whose_submission_was_not_answered_is_found_and_ended(tmp_path: Path) -> None:
    with Emulator(hosts=2, cycle_s=0.2) as emulator:

        async def story(made: LsfScheduler) -> None:
            await made.poll()
            emulator.manners(unanswered=1)
            with pytest.raises(UnsureError):
                await made.submit(PILOT, "secret")
            emulator.manners(unanswered=0)
            assert [pilot.node for pilot in (await until(made, runs)).pilots] == ["h1"]
            await made.cancel([PILOT])
            await until(made, lambda snapshot: not snapshot.pilots)

        told(emulator, tmp_path, story)


def test_an_answer_behind_a_line_about_waiting_counts(tmp_path: Path) -> None:
    with Emulator(hosts=2, cycle_s=0.2, manners=Manners(unreachable=1)) as emulator:

        async def story(made: LsfScheduler) -> None:
            await made.poll()
            await made.submit(PILOT, "secret")
            await until(made, runs)

        told(emulator, tmp_path, story)


def test_a_host_that_a_main_job_took_a_moment_before_is_not_ours(tmp_path: Path) -> None:
    with Emulator(hosts=2, cycle_s=0.2) as emulator:

        async def story(made: LsfScheduler) -> None:
            await made.poll()
            emulator.manners(lost_races=1, race_s=600.0)
            await made.submit(PILOT, "secret")
            snapshot = await until(made, lambda snapshot: "h1" not in snapshot.idle)
            assert [bool(pilot.pending) for pilot in snapshot.pilots] == [True]
            await made.cancel([PILOT])
            await until(made, lambda snapshot: not snapshot.pilots)

        told(emulator, tmp_path, story)


def test_a_wrapper_that_refuses_our_options_is_quoted(tmp_path: Path) -> None:
    with Emulator(hosts=2, cycle_s=0.2, manners=Manners(wrapped=True)) as emulator:

        async def story(made: LsfScheduler) -> None:
            await made.poll()
            with pytest.raises(SchedulerError, match=r"30: The '-n <slots>' flag is no longer supported"):
                await made.submit(PILOT, "secret")

        told(emulator, tmp_path, story)


@pytest.mark.parametrize("how", list(OnPreempt))
def test_a_preempted_pilot_gives_its_host_back(how: OnPreempt, tmp_path: Path) -> None:
    with Emulator(site=sites.small(2, preempt=how), cycle_s=0.2) as emulator:

        async def story(made: LsfScheduler) -> None:
            await made.poll()
            await made.submit(PILOT, "secret")
            await until(made, runs)
            emulator.main_job(seconds=DAY_S / 2, only=["h1"])
            snapshot = await until(made, lambda snapshot: "h1" not in snapshot.idle)
            await made.cancel(snapshot.pilots)
            await until(made, lambda snapshot: not snapshot.pilots)
            assert await made.failures([PILOT]) == {}

        told(emulator, tmp_path, story)


def test_a_claim_is_made_for_a_main_job_that_our_pilot_keeps_waiting(tmp_path: Path) -> None:
    with Emulator(site=sites.small(2, preempt=None), cycle_s=0.2) as emulator:

        async def story(made: LsfScheduler) -> None:
            await made.poll()
            await made.submit(PILOT, "secret")
            await until(made, runs)
            main = emulator.main_job(2, seconds=60.0)
            snapshot = await until(made, lambda snapshot: bool(snapshot.claims))
            (claim,) = snapshot.claims
            assert (claim.job, claim.nodes, claim.count) == (str(main), frozenset({"h1"}), 1)
            await made.cancel(snapshot.pilots)
            snapshot = await until(made, lambda snapshot: any(job.on for job in snapshot.main))
            assert snapshot.claims == ()

        told(emulator, tmp_path, story)


def test_why_a_pilot_failed_is_found_though_bjobs_does_not_tell(tmp_path: Path) -> None:
    with Emulator(hosts=1, cycle_s=0.2, manners=Manners(no_exit_codes=True)) as emulator:

        async def story(made: LsfScheduler) -> None:
            await made.poll()
            await made.submit(PILOT, "secret")
            deadline = time.monotonic() + LONG_S
            while not (found := await made.failures([PILOT])):
                assert time.monotonic() < deadline
                await asyncio.sleep(0.1)
            assert "exit code 3" in found[PILOT]

        (tmp_path / "sleeper.sh.j2").write_text("#!/bin/sh\nexit 3\n")
        told(emulator, tmp_path, story)
