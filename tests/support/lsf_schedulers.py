"""The LSF scheduler on an emulated cluster: made for a test, with pilots that do nothing."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bftrainer.schedulers.lsf.commands import Form, Scope
from bftrainer.schedulers.lsf.pilot import LsfPilotJob
from bftrainer.schedulers.lsf.questions import Questions
from bftrainer.schedulers.lsf.scheduler import LsfScheduler
from bftrainer.schedulers.shared.pilot_job import Template

SLEEPER = "#!/bin/sh\nexec sleep 600\n"


class Clock:
    def now(self) -> float:
        return time.time()

    def behind_s(self) -> float:
        return 0.0


def pilot_job(folder: Path, **others: Any) -> LsfPilotJob:
    template = folder / "sleeper.sh.j2"
    if not template.exists():
        template.write_text(SLEEPER)
    return LsfPilotJob(
        **{
            "instance": "0a1b2c3d",
            "template": Template(template),
            "python": "python",
            "daemon": "127.0.0.1:1",
            "orphan_s": 60.0,
            "log_dir": folder,
            "max_s": 86_400.0,
            "queue": "killable",
            **others,
        }
    )


def lsf_scheduler(
    folder: Path, commands: Path, environ: Mapping[str, str], *, form: Form = Form.JSON, **others: Any
) -> LsfScheduler:
    """A scheduler that finds LSF's commands in a folder."""
    questions = Questions(Scope(form=form), timeout_s=20.0, folder=str(commands), environ=environ)
    launch = ("batch*",)
    return LsfScheduler(
        pilot_job(folder, **others), questions, launch=launch, claim_patience_s=120.0, clock=Clock()
    )
