"""A real daemon on a testbed, with the API of the integration tests' `Site`, kept alive as systemd would."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator

from bftrainer.api.client import DaemonError
from bftrainer.settings.client.given import SITE_VARIABLE
from slurm.testbed import Testbed, TestbedError
from tests.support.site import Site

RESTART_S = 2.0
"""As RestartSec in jobscripts/bftrainer.service."""
PILOT_PYTHON = """\
#!/bin/sh
# whatever a test kills or fills, Slurm itself shall find this machine's cores
exec nice -n 10 env OMP_NUM_THREADS=1 {python} "$@"
"""


@contextlib.contextmanager
def on_testbed(bed: Testbed, **settings: object) -> Iterator[SlurmSite]:
    """A daemon that runs on a testbed of its own; both end with the context."""
    with bed:
        site = SlurmSite(bed, **settings)
        try:
            site.start()
            yield site
        finally:
            site.close()


class SlurmSite(Site):
    """Its pilots run in the testbed's partition `backfill`.

    `crashes` are exit codes of daemons that ended by themselves.
    """

    def __init__(self, bed: Testbed, **settings: object) -> None:
        super().__init__(
            [],
            **{
                "scheduler": "slurm",
                "slurm_partition": "backfill",
                "slurm_watch": "batch",
                "log_format": "text",  # with times
                "poll_s": 0.25,
                "reconnect_s": 5,  # as by default: agents that stay away are what faults are about
                "spare_s": 2,
                "rejoin_s": 3,  # as by default
                "submissions_per_minute": 1000,
                **settings,
            },
        )
        self.bed = bed
        python = self.root / "pilot-python"
        python.write_text(PILOT_PYTHON.format(python=sys.executable))
        python.chmod(0o755)
        self.command = [sys.executable, "-m", "bftrainer", "daemon", "--state-dir", str(self.state)]
        self.environ |= {"SLURM_CONF": str(bed.plan.conf), "BFTRAINER_PILOT_PYTHON": str(python)}
        # no other site's settings
        self.environ |= {SITE_VARIABLE: str(self.root / "site.yaml"), "XDG_CONFIG_HOME": str(self.root)}
        self.crashes: list[int] = []
        self._due: float | None = None  # when the daemon is to be started again

    @property
    def log(self) -> str:
        """What all daemons have said."""
        return (self.root / "daemon.log").read_text("utf-8", "replace")

    def launch(self) -> None:
        """Start a daemon; returns at once."""
        self._due = None
        with (self.root / "daemon.log").open("ab") as log:
            self.daemon = subprocess.Popen(self.command, stdout=log, stderr=log, env=self.environ)

    def kill_daemon(self) -> None:
        """SIGKILL; `supervise` starts the next."""
        super().kill_daemon()
        self._due = time.monotonic() + RESTART_S

    def supervise(self) -> None:
        """To be called often: a daemon that has ended is started again after a moment."""
        assert self.daemon is not None
        if self._due is None and self.daemon.poll() is not None:
            self.crashes.append(self.daemon.returncode)
            self._due = time.monotonic() + RESTART_S
        if self._due is not None and time.monotonic() >= self._due:
            self.launch()

    def alive(self) -> bool:
        """Whether there is a daemon, and it answers."""
        if self.daemon is None or self.daemon.poll() is not None:
            return False
        with contextlib.suppress(DaemonError):
            return bool(self.get("status"))
        return False

    def jobs(self, states: str = "all") -> list[tuple[str, str]]:
        """(name, node) of our jobs in the queue that have not ended; of those in some states."""
        shown = self.bed.run(["squeue", "-h", "-t", states, "-o", "%T|%j|%N|%n"]).stdout
        rows = (line.split("|") for line in shown.splitlines())
        return [
            (name, on or wanted)
            for state, name, on, wanted in rows
            if name.startswith("bftrainer-") and state in ("PENDING", "RUNNING", "COMPLETING", "SUSPENDED")
        ]

    def close(self) -> None:
        with contextlib.suppress(TestbedError, subprocess.TimeoutExpired):
            if self.daemon is not None and self.daemon.poll() is None:
                super().kill_daemon()
            self.bed.run(["scancel", "-p", "backfill"], timeout=20)
        super().close()
