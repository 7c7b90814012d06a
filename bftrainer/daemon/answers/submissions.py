"""Reads the specs that users submit, in a thread and by turns, and checks what the site allows."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

from bftrainer.api.callers import Caller
from bftrainer.api.errors import FullError, TooManyError
from bftrainer.daemon.lanes import fair_thread
from bftrainer.errors import BftrainerError
from bftrainer.messages.commands.daemon import (
    ABOVE_CLAIM,
    DAEMONS_OWN_FILE,
    LAUNCHER_LACKS,
    MOST_OF_A_USER,
    MOST_OF_ALL,
    PRIORITY,
    SPEC_PATH,
    TOO_OFTEN,
)
from bftrainer.model.text import plain
from bftrainer.model.trainer import TrainerSpec
from bftrainer.search import events
from bftrainer.search.cost import StudyBounds, addition
from bftrainer.search.files.parse import parse as parse_study
from bftrainer.search.optuna.storage import file_of
from bftrainer.search.study import StudySpec
from bftrainer.search.trial import Study
from bftrainer.settings.live import LiveSettings
from bftrainer.settings.values import Settings
from bftrainer.spec.counted import counted
from bftrainer.spec.located_yaml import SPEC, STUDY, YamlLimits
from bftrainer.spec.parse import parse
from bftrainer.spec.schema import MOST
from bftrainer.telemetry.telemetry import Telemetry
from bftrainer.wire.rates import Bucket

Read = TypeVar("Read")
NEEDS = {"torchrun": "torch", "horovod": "horovod"}
"""Launcher -> the package that the daemon's own Python needs for it."""
MAX_PATH = 4096
"""Characters of a path, as in Linux."""
SPECS_WAITING = 64
"""Specs of all users that wait to be read: each has up to `max_spec_kb` in memory."""
SPECS_OF_A_USER = 8
"""Specs of one user that wait to be read: eight users fill the line."""


class Submissions:
    """Lets specs in, one after the other, as far as their user and all users together may.

    `unfinished` says how many stored trainers have not ended, of a user or of all (None): also of those that
    the engine does not know yet, such as while the daemon recovers. `now` is a monotonic clock (s). Admins
    are bound by the sizes of specs and queues only.
    """

    def __init__(
        self,
        settings: LiveSettings,
        telemetry: Telemetry,
        unfinished: Callable[[str | None], int],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings, self._telemetry, self._now = settings, telemetry, now
        self._unfinished = unfinished
        self._reading = fair_thread("specs", telemetry)
        self._waiting: Counter[int] = Counter()  # specs to be read, by uid
        self._rates: dict[tuple[int, int], Bucket] = {}  # of those that have submitted, by uid and bound
        self._under_way: Counter[str] = Counter()  # specs that may become trainers, by user

    @contextmanager
    def place(self, caller: Caller) -> Iterator[None]:
        """A place for one more trainer of the caller, until the context ends: by then the trainer is stored
        and counts as one that has not ended, or it was refused.

        Raises:
            TooManyError: the caller has submitted too much.
            FullError: all users together have.
        """
        settings = self._settings.current
        self.check_rate(caller)
        self._check_counts(caller, settings)
        self._under_way[caller.user] += 1
        try:
            yield
        finally:
            self._under_way[caller.user] -= 1
            self._under_way += Counter()  # forget those that have none

    async def read(self, caller: Caller, text: str, name: str, base: str) -> TrainerSpec:
        """The caller's spec `text`, of a file `name` in the folder `base`, if it is valid and allowed.

        Raises:
            TooManyError: too many specs of the caller wait to be read.
            FullError: too many of all users do.
            BftrainerError: the spec is wrong, or asks for more than the site allows.
        """
        wanted = await self._read(caller, text, name, base, parse, SPEC)
        settings = self._settings.current
        self._check_claims(caller, wanted, settings)
        _check_launcher(wanted.launcher)
        return replace(counted(wanted, settings.engine), user=caller.user)

    async def read_study(
        self, caller: Caller, text: str, name: str, base: str, taken: tuple[int, int]
    ) -> StudySpec:
        """The caller's study file, as `read` reads a spec; unfinished studies of the caller, and of all,
        have `taken` bytes of memory. Raises as that does."""
        reading = partial(parse_study, most=self._most(*taken))
        wanted = await self._read(caller, text, name, base, reading, STUDY)
        settings = self._settings.current
        self._check_claims(caller, wanted.trainer, settings)
        _check_launcher(wanted.trainer.launcher)
        _check_storage(wanted.storage, settings.state_dir)
        return replace(wanted, trainer=replace(counted(wanted.trainer, settings.engine), user=caller.user))

    async def read_addition(
        self,
        caller: Caller,
        study: Study,
        trials: int,
        points: Sequence[object],
        taken: tuple[int, int],
    ) -> events.Add:
        """Return what the caller adds to a study, if it is valid and allowed; other unfinished studies of its
        user, and of all users, have `taken` bytes of memory. Raises as `read` does."""
        return await self._turn(caller, partial(addition, study, trials, points, self._most(*taken)))

    def _most(self, taken: int, of_all: int) -> StudyBounds:
        now = self._settings.current
        return StudyBounds(trials=now.max_trials, trial_kb=now.max_spec_kb, taken=taken, of_all=of_all)

    async def _read(
        self,
        caller: Caller,
        text: str,
        name: str,
        base: str,
        how: Callable[[str, str, Path, YamlLimits], Read],
        most: YamlLimits,
    ) -> Read:
        settings = self._settings.current
        _check_path("name", name)
        _check_path("base", base)
        if not Path(base).is_absolute():
            raise BftrainerError(SPEC_PATH.say(key="base", why=f"{base!r} is not the whole path of a folder"))
        bounds = replace(most, kb=settings.max_spec_kb)
        return await self._turn(caller, partial(how, text, name, Path(base), bounds))

    async def _turn(self, caller: Caller, work: Callable[[], Read]) -> Read:
        """Return the result of `work`, which runs in the thread that reads specs."""
        self._check_line(caller)
        self._waiting[caller.uid] += 1
        try:
            return await self._reading.run(caller.user, work)
        finally:
            self._waiting[caller.uid] -= 1
            self._waiting += Counter()  # forget those that have none

    def close(self) -> None:
        """Let go of the thread that reads specs."""
        self._reading.close()

    # each raises if a bound is hit

    def check_rate(self, caller: Caller) -> None:
        """Raise `TooManyError` if the caller has ordered too much in the last minute."""
        if caller.admin:
            return
        most = self._settings.current.max_submits_per_minute
        self._rates = {key: bucket for key, bucket in self._rates.items() if not bucket.full}
        bucket = self._rates.setdefault((caller.uid, most), Bucket(most / 60.0, float(most), self._now))
        wait = bucket.take_if_enough()
        if wait:
            raise self._beyond(
                TooManyError(TOO_OFTEN.say(most=most, wait=wait)),
                "max_submits_per_minute",
                caller,
            )

    def _check_counts(self, caller: Caller, settings: Settings) -> None:
        if self._unfinished(None) + self._under_way.total() >= settings.max_trainers:
            raise self._beyond(
                FullError(
                    MOST_OF_ALL.say(
                        count=settings.max_trainers, what="trainers have not ended", setting=" (max_trainers)"
                    )
                ),
                "max_trainers",
                caller,
            )
        if caller.admin:
            return
        count = self._unfinished(caller.user) + self._under_way[caller.user]
        if count >= settings.max_trainers_per_user:
            raise self._beyond(
                TooManyError(
                    MOST_OF_A_USER.say(
                        count=count,
                        what="of your trainers have not ended",
                        setting=" (max_trainers_per_user)",
                    )
                ),
                "max_trainers_per_user",
                caller,
            )

    def _check_line(self, caller: Caller) -> None:
        if self._waiting.total() >= SPECS_WAITING:
            raise self._beyond(
                FullError(MOST_OF_ALL.say(count=SPECS_WAITING, what="specs wait to be read", setting="")),
                "max_specs_waiting",
                caller,
            )
        if self._waiting[caller.uid] >= SPECS_OF_A_USER:
            raise self._beyond(
                TooManyError(
                    MOST_OF_A_USER.say(
                        count=SPECS_OF_A_USER, what="specs of yours wait to be read", setting=""
                    )
                ),
                "max_specs_waiting_per_user",
                caller,
            )

    def check_priority(self, caller: Caller, priority: float) -> None:
        """Raise `BftrainerError` if the caller may not give a trainer this priority, or not yet: each change
        costs a plan."""
        self.check_rate(caller)
        if not 0 < priority <= MOST:
            raise BftrainerError(PRIORITY.say(given=priority, most=MOST))
        if not caller.admin:
            _check_claim("priority", priority, self._settings.current.max_priority)

    def _check_claims(self, caller: Caller, wanted: TrainerSpec, settings: Settings) -> None:
        if not caller.admin:
            _check_claim("priority", wanted.priority, settings.max_priority)
            _check_claim("weight", wanted.weight, settings.max_weight)

    def _beyond(self, error: BftrainerError, bound: str, caller: Caller) -> BftrainerError:
        self._telemetry.bounded(bound, caller.user)
        return error


def _check_claim(what: str, value: float, most: float) -> None:
    if value > most:
        raise BftrainerError(ABOVE_CLAIM.say(what=what, value=value, most=most))


def _check_launcher(launcher: str) -> None:
    package = NEEDS.get(launcher)
    if package is not None and find_spec(package) is None:
        raise BftrainerError(LAUNCHER_LACKS.say(launcher=launcher, package=package))


def _check_path(key: str, path: str) -> None:
    try:
        plain(path)
    except ValueError as error:
        raise BftrainerError(SPEC_PATH.say(key=key, why=error)) from error
    if len(path) > MAX_PATH:
        why = f"{len(path):,} characters, and a path has at most {MAX_PATH:,}"
        raise BftrainerError(SPEC_PATH.say(key=key, why=why))


def _check_storage(url: str | None, state_dir: Path) -> None:
    """Raise if a study's storage is named as one of the daemon's own files. By its letters alone: to follow a
    user's links may take for ever, and nothing here opens the file."""
    path = None if url is None else file_of(url)
    if path is not None and os.path.normpath(path).startswith(f"{os.path.normpath(state_dir)}/"):
        raise BftrainerError(DAEMONS_OWN_FILE.say(key="storage", path=path))
