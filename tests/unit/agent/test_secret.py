"""How an agent is given its secret."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import until

SECRET = "0123abcd" * 8


def agent(folder: Path, **options: object) -> subprocess.Popen[bytes]:
    words = ("-m", "bftrainer.agent", "--node", "n", "--tag", "t", "--daemon", str(folder / "none"))
    return subprocess.Popen(
        [sys.executable, *words],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **options,  # type: ignore[call-overload]
    )


def test_an_agent_reads_its_secret_once_and_shows_it_nowhere(tmp_path: Path) -> None:
    process = agent(tmp_path)
    try:
        assert process.stdin is not None
        process.stdin.write(f"{SECRET}\n".encode())
        process.stdin.flush()
        proc = Path(f"/proc/{process.pid}")
        until(lambda: str((proc / "fd" / "0").readlink()) == os.devnull, "the secret is read", seconds=30)
        assert SECRET.encode() not in (proc / "environ").read_bytes() + (proc / "cmdline").read_bytes()
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("told", [b"", b"\n"])
def test_an_agent_without_a_secret_says_how_it_is_given(tmp_path: Path, told: bytes) -> None:
    process = agent(tmp_path, env={**os.environ, "BFTRAINER_SECRET": SECRET})
    _, said = process.communicate(told, timeout=60)
    assert process.returncode == 1 and b"slurm-pilot.sh.j2" in said


def test_no_process_of_the_same_user_can_trace_an_agent_in_a_job_of_slurm(tmp_path: Path) -> None:
    """As root, who can trace all, only the owner of its files in /proc tells: root, not the user."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to run an agent as another user")
    tmp_path.chmod(0o755)
    code = "from bftrainer.agent.process import close_to_tracers; import os; os.setuid(65534); "
    code += "close_to_tracers(); print(flush=True); input()"
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ
    )
    try:
        assert process.stdout is not None and process.stdout.readline() == b"\n"
        assert Path(f"/proc/{process.pid}/environ").stat().st_uid == 0
    finally:
        process.kill()
        process.wait()
