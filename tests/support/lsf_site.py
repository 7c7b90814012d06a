"""A real daemon on an emulated LSF, with the API of the integration tests' `Site`."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

from bftrainer.settings.client.given import SITE_VARIABLE
from lsf.emulator.emulator import Emulator, EmulatorError
from tests.support.site import Site
from tests.support.waiting import until


def begun(emulator: Emulator, job: int) -> None:
    """Wait until a main job runs."""
    until(
        lambda: next(found for found in emulator.jobs() if found["id"] == job)["state"] == "RUN",
        f"main job {job} runs",
    )


class LsfSite(Site):
    """Its pilots run in the emulator's queue `killable`."""

    def __init__(self, emulator: Emulator, **settings: object) -> None:
        super().__init__(
            [],
            **{
                "scheduler": "lsf",
                "lsf_queue": "killable",
                "lsf_bin": emulator.bin,
                "pilot_python": sys.executable,
                "log_format": "text",
                "poll_s": 0.25,
                "debounce_s": 0,
                "spare_s": 2,
                "headroom": 0,
                "submissions_per_minute": 1000,
                **settings,
            },
        )
        self.emulator = emulator
        self.command = [sys.executable, "-m", "bftrainer", "daemon", "--state-dir", str(self.state)]
        self.environ |= {SITE_VARIABLE: str(self.root / "site.yaml"), "XDG_CONFIG_HOME": str(self.root)}

    def pilots(self) -> list[dict[str, Any]]:
        """Our jobs that have not ended."""
        alive = ("PEND", "RUN", "SSUSP", "USUSP", "PSUSP")
        return [
            job
            for job in self.emulator.jobs()
            if job["name"].startswith("bftrainer-") and job["state"] in alive
        ]

    def close(self) -> None:
        with contextlib.suppress(EmulatorError):
            if self.daemon is not None and self.daemon.poll() is None:
                super().kill_daemon()
            self.emulator.run("bkill", "0")
        super().close()
