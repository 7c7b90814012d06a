"""How the jobs of users are ended who do not want that: they kill, stop and refuse what runs as them."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path

import pytest

from bftrainer.errors import KeptError, SchedulerError
from bftrainer.model.machine import Pilot
from bftrainer.schedulers.slurm import scheduler as slurm
from bftrainer.schedulers.slurm.scheduler import SlurmScheduler
from tests.support.slurm_commands import Commands
from tests.support.slurm_samples import PILOT_JOB

SITE = replace(PILOT_JOB, exec_prefix=("become", "{user}"))
ANNS = Pilot(tag="1" * 32, node="n1", user="ann", job="12")
AS_ANN = 'shift; BECAME=ann; export BECAME; exec "$@"'


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(slurm, "own_name", lambda: "bft")
    monkeypatch.setattr(slurm.os, "geteuid", lambda: 1000)
    found = Commands(tmp_path)
    found.set("become", AS_ANN)
    return found


def ends(commands: Commands, scheduler: SlurmScheduler | None = None) -> str:
    """What is said of a cancellation that fails; "" if it does not."""

    async def scenario() -> None:
        found = scheduler or commands.scheduler(SITE)
        found._see([ANNS])
        await found.cancel([ANNS])

    try:
        asyncio.run(scenario())
    except SchedulerError as error:
        return str(error)
    return ""


def ended(commands: Commands) -> list[str]:
    path = commands.folder / "ended"
    return path.read_text().split() if path.exists() else []


def test_a_jobs_steps_and_its_script_are_killed_before_it_is_cancelled(commands: Commands) -> None:
    assert ends(commands) == ""
    assert [call for call in commands.calls() if call.startswith("scancel")] == [
        "scancel --signal=997 12",
        "scancel --batch --signal=KILL 12",
        "scancel 12",
    ]


def test_a_job_that_waits_has_no_steps(commands: Commands) -> None:
    """scancel would try to pass their signal on for a minute."""

    async def scenario() -> None:
        scheduler = commands.scheduler(SITE)
        scheduler._see([replace(ANNS, pending="Resources")])
        await scheduler.cancel([ANNS])
        assert await scheduler.failures([ANNS]) == {}, "those that are killed have not failed"

    asyncio.run(scenario())
    assert [call for call in commands.calls() if call.startswith(("scancel", "scontrol"))] == [
        "scancel --batch --signal=KILL 12",
        "scancel 12",
    ]


def test_a_cancellation_that_its_user_kills_is_tried_again_at_once(commands: Commands) -> None:
    commands.set(
        "scancel",
        'if [ $(grep -c . tries) -lt 3 ]; then echo again >> tries; kill -9 $$; fi; echo "$*" >> ended',
    )
    (commands.folder / "tries").touch()
    assert ends(commands) == ""
    assert ended(commands)[-1] == "12"
    assert commands.calls().count("scancel 12") == 1, "a plain one would keep the other from killing"


def test_what_its_user_always_kills_our_own_account_cancels(commands: Commands) -> None:
    commands.set("scancel", 'if [ "$BECAME" ]; then kill -9 $$; fi; echo "$*" >> ended')
    assert ends(commands) == ""
    assert ended(commands)[-1] == "12"


def test_what_nobody_else_may_cancel_and_its_user_kills_is_a_failure_that_says_so(commands: Commands) -> None:
    commands.set("scancel", 'if [ "$BECAME" ]; then kill -9 $$; fi; echo "Access denied" >&2; exit 1')
    assert ends(commands) == "scancel as ann was ended by a signal, 5 times"
    with pytest.raises(KeptError):
        asyncio.run(commands.scheduler(SITE).cancel([ANNS]))


def test_a_cancellation_that_its_user_stops_gets_another_one_beside_it(commands: Commands) -> None:
    commands.set("scancel", 'if mkdir first; then exec sleep 3; fi; echo "$*" >> ended')
    assert ends(commands) == ""
    assert ended(commands)[-1] == "12"


@pytest.mark.parametrize(("level", "own"), [("Operator", True), ("Administrator", True), ("None", False)])
def test_an_operator_cancels_as_itself(commands: Commands, level: str, own: bool) -> None:
    commands.set("sacctmgr", f"echo {level}")

    async def scenario() -> None:
        scheduler = commands.scheduler(SITE)
        await scheduler.poll()
        assert scheduler._learns is not None
        await scheduler._learns
        await scheduler.cancel([ANNS])

    asyncio.run(scenario())
    calls = commands.calls()
    assert any(call.startswith("become ann") for call in calls) is not own
    assert "scancel 12" in calls


def test_what_an_operator_is_refused_nonetheless_is_cancelled_as_its_user(commands: Commands) -> None:
    commands.set("scancel", 'if [ -z "$BECAME" ]; then exit 1; fi; echo "$*" >> ended')
    scheduler = commands.scheduler(SITE)
    scheduler._ending.own = True
    assert ends(commands, scheduler) == ""
    assert ended(commands)[-1] == "12"


def test_an_operator_ends_no_job_because_its_users_sbatch_has_printed_that_number(commands: Commands) -> None:
    """A user may write into what runs as it: 4711 is another user's main job."""
    commands.set("sbatch", "cat > script; echo 4711")
    pilot = Pilot(tag="1" * 32, node="n6", user="ann")

    async def scenario() -> None:
        scheduler = commands.scheduler(SITE)
        scheduler._ending.own = True
        await scheduler.submit(pilot, "secret")
        await scheduler.cancel([pilot])

    asyncio.run(scenario())
    calls = commands.calls()
    assert calls[-1].startswith("squeue"), "the queue tells the pilot's number by its name"
    assert not any(call.startswith("scancel") for call in calls)


def test_no_poll_waits_for_the_accounting(commands: Commands) -> None:
    commands.set("sacctmgr", "until [ -e polled ]; do /bin/sleep 0.01; done; echo Operator")

    async def scenario() -> None:
        scheduler = commands.scheduler(SITE)
        await scheduler.poll()
        (commands.folder / "polled").touch()
        assert scheduler._learns is not None
        await scheduler._learns

    asyncio.run(scenario())
