"""A real Slurm for the tests of this folder; they skip where there can be none."""

from __future__ import annotations

import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm.testbed import Testbed, why_not

NODES = 4


@pytest.fixture(scope="session", autouse=True)
def slurm_is_there() -> None:
    if why := why_not():
        pytest.skip(why)


@pytest.fixture(scope="session")
def bed(slurm_is_there: None) -> Iterator[Testbed]:
    """A testbed of 4 nodes, this worker's own; leave its nodes idle and no job on it."""
    with Testbed(nodes=NODES) as bed:
        yield bed


@pytest.fixture(scope="session")
def users(bed: Testbed, worker_id: str) -> Iterator[tuple[str, str]]:
    """Two Unix users, this worker's own: another checkout's tests may run on this machine, too."""
    suffix = f"{worker_id}-{secrets.token_hex(2)}"
    names = (f"bft-a-{suffix}", f"bft-b-{suffix}")
    with bed.with_users(names):
        yield names


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory to be, in one that other users can pass through (which tmp_path is not)."""
    with tempfile.TemporaryDirectory(prefix="bftrainer-test-") as parent:
        Path(parent).chmod(0o755)
        yield Path(parent) / "bed"


@pytest.fixture(scope="session")
def service(bed: Testbed, users: tuple[str, str]) -> Iterator[str]:
    """The daemon's account, which may submit and cancel jobs as the users, and nothing else."""
    name = users[0].replace("-a-", "-d-")
    commands = ", ".join(str(shutil.which(word)) for word in ("sbatch", "scancel"))
    rule = Path("/etc/sudoers.d", name)
    with bed.with_users((name,)):
        rule.touch(0o440)
        try:
            as_users = f"({', '.join(users)}) NOPASSWD: {commands}"
            rule.write_text(f"Defaults:{name} env_keep += SLURM_CONF\n{name} ALL={as_users}\n")
            subprocess.run(["visudo", "-c", "-q", "-f", rule], check=True)
            yield name
        finally:
            rule.unlink()
