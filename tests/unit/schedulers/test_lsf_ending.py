"""Users' pilots on LSF are ended by our own account where LSF allows that, and else as the user."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from bftrainer.errors import SchedulerError
from bftrainer.schedulers.lsf import ending as ending_module
from bftrainer.schedulers.lsf.ending import Ending
from bftrainer.schedulers.shared.command import Output
from lsf.emulator import sites
from tests.support.lsf_questions import Desk


class Account:
    """Runs commands on an emulated LSF as the daemon's account bft, or behind `sudo` as a user."""

    def __init__(self, *administrators: str) -> None:
        site = sites.small(4)
        queues = tuple(replace(queue, administrators=frozenset(administrators)) for queue in site.queues)
        self.desk = Desk(replace(site, queues=queues))
        self.ran: list[tuple[str, ...]] = []
        self.down = False
        self.ending = Ending(self.run, lambda user, words: ["sudo", user, *words] if user else list(words))

    async def run(self, words: Sequence[str]) -> Output:
        self.ran.append(tuple(words))
        if self.down:
            raise SchedulerError("LSF does not answer")
        user, rest = ("bft", words) if words[0] != "sudo" else (words[1], words[2:])
        said = self.desk.ask(*rest, user=user, uid=1000)
        return Output(said.code, said.out.encode(), said.err)

    def job(self) -> str:
        made = self.desk.submit("-n", "42", "sleep", "600", user="alice", uid=1001)
        self.desk.cluster.advance(self.desk.now)
        return str(made.id)

    def end(self, job: str) -> str:
        return asyncio.run(self.ending.end("alice", [job]))

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
