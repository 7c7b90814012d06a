"""`bftrainer admin check` beside a daemon that runs, and beside none."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.support.site import Site, always, running
from tests.support.waiting import LONG_S


def checked(site: Site) -> tuple[int, dict[str, tuple[str, str]]]:
    """The exit code; level and what was found of each check."""
    command = [sys.executable, "-m", "bftrainer", "admin", "check", "--json", "--state-dir", str(site.state)]
    environ = site.environ | {"BFTRAINER_SCHEDULER": "local"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environ, timeout=LONG_S)
    assert not done.stderr, done.stderr
    return done.returncode, {one["check"]: (one["level"], one["found"]) for one in json.loads(done.stdout)}


def test_a_daemon_that_runs_is_asked_how_it_is_and_one_that_does_not_is_no_fault() -> None:
    with running(always("n1"), min_free_mb=1) as site:
        code, found = checked(site)
        assert code == 0
        assert found["daemon"][0] == "ok"
        assert site.daemon is not None
        assert f"pid {site.daemon.pid}" in found["daemon"][1]
        assert found["descriptors"][1].startswith("the daemon may open")
        assert found["state directory"][0] == "ok"
        site.stop()
        code, found = checked(site)
        assert (code, found["daemon"][0]) == (0, "not checked")
        site.state.chmod(0o755)
        code, found = checked(site)
        assert (code, found["state directory"][0]) == (0, "warning"), "the daemon closes it at its start"
