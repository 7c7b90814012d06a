"""bftrainer.schedulers.lsf passes the scheduler's contract on an emulated LSF."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bftrainer.schedulers.lsf.commands import Form
from bftrainer.schedulers.lsf.scheduler import LsfScheduler
from bftrainer.testing.scheduler import SchedulerContract
from lsf.emulator.emulator import Emulator
from tests.support.lsf_schedulers import lsf_scheduler
from tests.support.lsf_site import begun

DAY_S = 86_400.0


class EmulatedMachine:
    """Three hosts, of which a main job has one."""

    idle, busy, other = "h1", "h2", "h3"

    def __init__(self, emulator: Emulator, folder: Path, form: Form) -> None:
        self._emulator, self._folder, self._form = emulator, folder, form
        begun(emulator, emulator.main_job(seconds=DAY_S / 2, only=[self.busy]))

    def make(self) -> LsfScheduler:
        return lsf_scheduler(self._folder, self._emulator.bin, self._emulator.env, form=self._form)

    def take(self) -> None:
        self._emulator.main_job(seconds=DAY_S / 2, only=[self.idle])


@pytest.fixture(params=list(Form))
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[EmulatedMachine]:
    with Emulator(hosts=3, cycle_s=0.2) as emulator:
        yield EmulatedMachine(emulator, tmp_path, request.param)


class TestLsfScheduler(SchedulerContract):
    pass
