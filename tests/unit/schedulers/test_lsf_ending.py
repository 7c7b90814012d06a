"""Users' pilots on LSF are ended by our own account where LSF allows that, and else as the user, who may kill
and stop what runs as it."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Sequence
from dataclasses import replace

import pytest

from bftrainer.errors import SchedulerError
from bftrainer.schedulers.lsf import ending as ending_module
from bftrainer.schedulers.lsf.ending import LsfJobEnder
from bftrainer.schedulers.shared.cancelling import HELD_UP
from bftrainer.schedulers.shared.command import CommandOutput
from lsf.emulator import sites
from lsf.emulator.core.effects import Signal
from tests.support.lsf_questions import Desk


class Account:
    """Runs commands on an emulated LSF as the daemon's account bft, or behind `sudo` as a user."""

    def __init__(self, *administrators: str) -> None:
        site = sites.small(4)
        queues = tuple(replace(queue, administrators=frozenset(administrators)) for queue in site.queues)
        self.desk = Desk(replace(site, queues=queues))
        self.ran: list[tuple[str, ...]] = []
        self.down = False
        self.instead: CommandOutput | None = None  # of what the emulated LSF answers
        self.spoilt: list[str] = []  # what the user does to the next commands that run as it
        self.ending = LsfJobEnder(
            self.run, lambda user, words: ["sudo", user, *words] if user else list(words)
        )

    async def run(self, words: Sequence[str]) -> CommandOutput:
        self.ran.append(tuple(words))
        if words[0] == "sudo" and self.spoilt:
            how = self.spoilt.pop(0)
            if how == "stopped":
                await asyncio.sleep(3600.0)
            return CommandOutput(-9 if how == "killed" else 137, b"", "")
        if self.down:
            raise SchedulerError("LSF does not answer")
        if self.instead is not None:
            return self.instead
        user, rest = ("bft", words) if words[0] != "sudo" else (words[1], words[2:])
        said = self.desk.ask(*rest, user=user, uid=1000)
        return CommandOutput(said.code, said.out.encode(), said.err)

    def job(self) -> str:
        made = self.desk.submit("-n", "42", "sleep", "600", user="alice", uid=1001)
        self.desk.cluster.advance(self.desk.now)
        return str(made.id)

    def end(self, job: str) -> str:
        return asyncio.run(self.ending.end("alice", [job], {job: time.monotonic()}))

    def as_user(self) -> int:
        return sum(words[0] == "sudo" for words in self.ran)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending_module, "MOMENT_S", 0.0)


def test_an_administrator_of_the_queue_needs_no_command_that_runs_as_the_user() -> None:
    account = Account("bft")
    job = account.job()
    assert account.end(job) == ""
    assert account.as_user() == 0 and account.ending.own
    assert account.desk.cluster.state.jobs[int(job)].told, "LSF is ending it"


def test_an_ordinary_account_ends_jobs_as_their_user_and_tries_itself_once() -> None:
    account = Account()
    assert account.end(account.job()) == "" and account.end(account.job()) == ""
    assert account.ending.own is False
    assert [words[0] for words in account.ran].count("bkill") == 1, "it is not tried for every pilot"
    assert account.as_user() == 4


def test_an_lsf_that_is_down_says_nothing_of_what_we_may_do() -> None:
    account = Account("bft")
    job = account.job()
    account.down = True
    assert "does not answer" in account.end(job)
    account.down = False
    assert account.end(job) == ""
    assert account.ending.own is True


def test_another_refusal_than_that_of_permission_says_nothing_of_what_we_may_do() -> None:
    account = Account("bft")
    job = account.job()
    account.instead = CommandOutput(255, b"", f"Job <{job}>: Operation is in progress\n")
    assert "Operation is in progress" in account.end(job)
    account.instead = None
    assert account.end(job) == "" and account.ending.own


def test_a_bkill_that_its_user_kills_is_run_again() -> None:
    account = Account()
    account.ending.own = False
    job = account.job()
    account.spoilt = ["killed", "killed", "by sudo's account"]  # of these the first was to send SIGTERM
    assert account.end(job) == ""
    assert account.desk.cluster.state.jobs[int(job)].told


def test_who_kills_every_bkill_is_known_to_hold_a_pilot_up() -> None:
    account = Account()
    account.ending.own = False
    account.spoilt = ["killed"] * 100
    assert account.end(account.job()) == "bkill as alice was ended by a signal, 5 times"
    assert any(words in "bkill as alice was ended by a signal, 5 times" for words in HELD_UP)


def test_a_command_that_its_user_stops_keeps_neither_bkill_nor_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ending_module, "TERM_S", 0.05)
    monkeypatch.setattr(ending_module, "SLOW_S", 0.05)
    account = Account()
    account.ending.own = False
    job = account.job()
    account.spoilt = ["stopped"] * 3  # SIGTERM, and two times bkill
    assert account.end(job) == ""
    assert account.desk.cluster.state.jobs[int(job)].told
    assert account.as_user() == 4


def test_a_parallel_job_of_a_site_that_kills_these_at_once_hears_sigterm_before() -> None:
    account = Account()
    site = replace(account.desk.site, kill_parallel=True)
    account.desk = Desk(site)
    job = account.job()
    assert account.end(job) == ""
    sent = [effect.number for effect in account.desk.cluster.state.effects if isinstance(effect, Signal)]
    assert sent == [signal.SIGTERM, signal.SIGKILL]


def test_a_pilot_that_is_still_there_much_later_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    account = Account()
    job = account.job()
    assert account.end(job) == ""
    monkeypatch.setattr(ending_module, "PATIENT_S", -1.0)
    assert account.end(job) == ""
    assert account.ran[-1] == ("sudo", "alice", "bkill", "-s", "KILL", job)
