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
