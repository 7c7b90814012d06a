"""How LSF's commands are run, and what becomes of answers that are not clear."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from bftrainer.errors import NoRoomError, SchedulerError, UnsureError
from bftrainer.model.machine import Pilot
from bftrainer.schedulers.lsf import ending, questions
from bftrainer.schedulers.lsf.scheduler import LsfScheduler
from tests.support.lsf_schedulers import lsf_scheduler

PILOT = Pilot(tag="0123abcd" * 4, node="a")
HOSTS = "HOST_NAME STATUS MAX NJOBS RUN SSUSP USUSP RSV\\na ok 42 0 0 0 0 0\\nb closed_Adm 42 0 0 0 0 0\\n"
ANSWERS = {
    "bhosts": f"printf '{HOSTS}' | sed 's/ /^/g'",
    "bjobs": "echo 'No unfinished job found' >&2; exit 255",
    "bslots": "echo 'No backfill window exists at this time'; exit 1",
    "bqueues": "printf 'QUEUE_NAME^PRIORITY^STATUS\\nkillable^1^Open:Active\\n'",
    "bhist": "echo 'No matching job found' >&2; exit 255",
}
DOWN = "echo 'LSF is down. Please wait ...' >&2; sleep 60"


def scheduler(
    folder: Path, *, gpus: bool = False, exec_prefix: tuple[str, ...] = (), **answers: str
) -> LsfScheduler:
    commands = folder / "bin"
    commands.mkdir(exist_ok=True)
    for name, body in {**ANSWERS, **answers}.items():
        path = commands / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
    return lsf_scheduler(folder, commands, os.environ, gpus=gpus, exec_prefix=exec_prefix)


def run(made: LsfScheduler, story: Callable[[LsfScheduler], Coroutine[Any, Any, Any]]) -> Any:
    async def whole() -> Any:
        try:
            return await story(made)
        finally:
            await made.close()

    return asyncio.run(whole())


def polled(made: LsfScheduler) -> Any:
    return run(made, lambda it: it.poll())


def test_a_machine_without_jobs(tmp_path: Path) -> None:
    snapshot = polled(scheduler(tmp_path))
    assert snapshot.idle == {"a"}
    assert {node.name: node.why for node in snapshot.nodes} == {"a": "", "b": "closed_Adm"}


@pytest.mark.parametrize("name", ["bhosts", "bjobs"])
@pytest.mark.parametrize("body", [DOWN, "exit 0", "echo garbage", "exit 255"])
def test_an_answer_that_is_not_clear_is_no_empty_machine(tmp_path: Path, name: str, body: str) -> None:
    begin = time.monotonic()
    with pytest.raises(SchedulerError, match="LSF does not answer" if body == DOWN else name):
        polled(scheduler(tmp_path, **{name: body}))
    assert time.monotonic() - begin < 15, "it does not wait for a command that will go on trying"


def test_questions_that_are_not_needed_may_fail(tmp_path: Path) -> None:
    assert polled(scheduler(tmp_path, bslots=DOWN, bqueues="exit 255")).idle == {"a"}


@pytest.mark.parametrize(
    ("long", "seconds"),
    [
        ("printf 'SLOTS: 42\\nRUNTIME: 9 minutes 0 seconds\\nHOSTS: 42*a\\n'", 540.0),
        ("printf 'SLOTS: 42\\nRUNTIME: 9 minutes 0 seconds\\nHOSTS: 2*a\\n'", 300.0),
        ("echo 'Illegal option -l' >&2; exit 255", 300.0),
    ],
)
def test_windows_of_hosts_count_where_the_long_form_names_them_all(
    tmp_path: Path, long: str, seconds: float
) -> None:
    short = "printf 'SLOTS RUNTIME\\n42 5 minutes 0 seconds\\n'"
    body = f'if [ "$1" = -l ]; then {long}; else {short}; fi'
    snapshot = polled(scheduler(tmp_path, bslots=body))
    until = next(node.until for node in snapshot.nodes if node.name == "a")
    assert until == pytest.approx(snapshot.time + seconds, abs=5.0)


@pytest.mark.parametrize(
    ("body", "kind", "words"),
    [
        ("echo 'No such queue. Job not submitted.' >&2; exit 255", SchedulerError, "bsub: No such queue"),
        ("echo 'LSF is down. Please wait ...' >&2; exit 255", UnsureError, "LSF does not answer"),
        ("echo hello", UnsureError, "no job number"),
        ("exit 0", UnsureError, "it says nothing"),
    ],
)
def test_submissions_that_fail(tmp_path: Path, body: str, kind: type[Exception], words: str) -> None:
    async def story(made: LsfScheduler) -> None:
        await made.poll()
        with pytest.raises(kind, match=words) as caught:
            await made.submit(PILOT, "secret")
        assert type(caught.value) is kind

    run(scheduler(tmp_path, bsub=body), story)


def test_no_pilot_on_a_host_that_is_not_free(tmp_path: Path) -> None:
    async def story(made: LsfScheduler) -> None:
        await made.poll()
        with pytest.raises(NoRoomError, match="b is not free: closed_Adm"):
            await made.submit(Pilot(tag=PILOT.tag, node="b"), "secret")

    run(scheduler(tmp_path, bsub="exit 1"), story)


def test_a_pilot_is_told_and_then_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = tmp_path / "calls"
    bsub = f"cat > {tmp_path}/script; echo 'Job <12> is submitted to queue <killable>.'"

    async def story(made: LsfScheduler) -> None:
        await made.poll()
        await made.submit(PILOT, "secret")
        await made.cancel([PILOT])
        monkeypatch.setattr(ending, "PATIENT_S", 0.0)
        await made.cancel([PILOT])

    body = f'echo "$@" >> {calls}; echo "Job <12> is being terminated"'
    run(scheduler(tmp_path, bsub=bsub, bkill=body), story)
    assert calls.read_text().splitlines() == ["-s TERM 12", "12", "-s KILL 12"]


def test_no_job_is_ended_because_its_users_bsub_has_printed_that_number(tmp_path: Path) -> None:
    """A user may write into what runs as it: 12 is another user's main job."""
    calls = tmp_path / "calls"
    pilot = Pilot(tag=PILOT.tag, node="a", user="ann")

    async def story(made: LsfScheduler) -> None:
        await made.poll()
        await made.submit(pilot, "secret")
        await made.cancel([pilot])

    bsub = "cat > /dev/null; echo 'Job <12> is submitted to queue <killable>.'"
    prefix = ("env", "USER={user}")
    run(scheduler(tmp_path, exec_prefix=prefix, bsub=bsub, bkill=f'echo "$@" >> {calls}'), story)
    assert not calls.exists()


@pytest.mark.parametrize(
    ("said", "fails"),
    [
        ("Job <12>: Job has already finished", False),
        ("Job <12>: No matching job found", False),
        ("Job <12>: User permission denied", True),
        ("LSF is down. Please wait ...", True),
        ("", True),
    ],
)
def test_what_bkill_says_counts_not_its_exit_code(tmp_path: Path, said: str, fails: bool) -> None:
    known = Pilot(tag=PILOT.tag, node="a", job="12")
    made = scheduler(tmp_path, bkill=f"echo '{said}' >&2; exit 255")
    if fails:
        with pytest.raises(SchedulerError, match=r"bkill|LSF does not answer"):
            run(made, lambda it: it.cancel([known]))
    else:
        run(made, lambda it: it.cancel([known]))


def test_why_a_pilot_failed_is_asked_of_bjobs_and_then_of_bhist(tmp_path: Path) -> None:
    head = "printf 'JOBID^STAT^EXIT_CODE^EXIT_REASON\\n'"
    known = Pilot(tag=PILOT.tag, node="a", job="12")
    found = run(scheduler(tmp_path, bjobs=f"{head}; echo '12^EXIT^1^'"), lambda it: it.failures([known]))
    assert "exit code 1" in found[known]
    bhist = "echo 'Job <12>, User <u>'; echo 'Mon Jan  1 00:00:00: Exited with exit code 3.'; "
    bhist += "echo 'Mon Jan  1 00:00:00: Completed <exit>;'"
    found = run(scheduler(tmp_path, bjobs=head, bhist=bhist), lambda it: it.failures([known]))
    assert "exit code 3" in found[known]
    assert run(scheduler(tmp_path, bjobs=head), lambda it: it.failures([known])) == {}


@pytest.mark.parametrize("name", ["bslots", "bqueues"])
def test_polls_do_not_wait_for_what_changes_slowly(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a main job would be seen as late as a slow bslots answers. Only the first answer is waited for."""
    for every in ("WINDOWS_S", "QUEUES_S"):
        monkeypatch.setattr(questions, every, 0.0)
    slow, hangs = tmp_path / "slow", tmp_path / "hangs"
    body = f"if [ -e {slow} ]; then touch {hangs}; exec sleep 60; fi; {ANSWERS[name]}"

    async def story(it: LsfScheduler) -> None:
        await it.poll()
        slow.touch()
        async with asyncio.timeout(15):  # less than a command may take
            while not hangs.exists():
                assert (await it.poll()).idle == {"a"}
            assert (await it.poll()).idle == {"a"}

    run(scheduler(tmp_path, **{name: body}), story)
