"""sudo for the exec_prefix, under what the system unit leaves to the daemon and to its children."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

UNIT = Path(__file__).parent.parent.parent / "jobscripts" / "bftrainer.service"


@pytest.fixture
def rule(users: tuple[str, str]) -> Iterator[None]:
    """The first user may run `id` as the second, as a sudo rule says."""
    path = Path("/etc/sudoers.d", users[0])
    path.write_text(f"{users[0]} ALL = ({users[1]}) NOPASSWD: /usr/bin/id\n")
    path.chmod(0o440)
    yield
    path.unlink()


def as_in_the_unit(user: str, *command: str, more: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    (line,) = re.findall(r"^CapabilityBoundingSet=(.+)$", UNIT.read_text(), re.MULTILINE)
    bound = ",".join(f"+{name.removeprefix('CAP_').lower()}" for name in line.split())
    become = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--inh-caps=-all"]
    return subprocess.run(
        [*become, f"--bounding-set=-all,{bound}", *more, *command],
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_unit_leaves_sudo_what_it_needs_and_the_daemon_nothing(
    users: tuple[str, str], rule: None
) -> None:
    daemon, other = users
    done = as_in_the_unit(daemon, "sudo", "-n", "-u", other, "--", "/usr/bin/id", "-un")
    assert (done.stdout, done.stderr) == (f"{other}\n", "")
    assert re.search(r"CapEff:\s+0+\n", as_in_the_unit(daemon, "cat", "/proc/self/status").stdout)


def test_sudo_would_not_run_with_no_new_privileges(users: tuple[str, str], rule: None) -> None:
    """Which is why the unit leaves them off."""
    done = as_in_the_unit(
        users[0], "sudo", "-n", "-u", users[1], "--", "/usr/bin/id", more=("--no-new-privs",)
    )
    assert done.returncode != 0
    assert "no new privileges" in done.stderr


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize(
    ("dropins", "most"),
    [((), 59), (("bftrainer-no-sudo.conf",), 14)],
    ids=["with sudo", "without"],
)
def test_the_unit_has_what_can_be_had_without_loss(
    tmp_path: Path, dropins: tuple[str, ...], most: int
) -> None:
    """As systemd measures exposure, times ten: to become another user by sudo rules the rest out."""
    folder = tmp_path / "etc/systemd/system"
    (folder / "bftrainer.service.d").mkdir(parents=True)
    (folder / UNIT.name).write_text(UNIT.read_text())
    for name in dropins:
        (folder / "bftrainer.service.d" / name).write_text((UNIT.parent / name).read_text())
    done = subprocess.run(
        [
            *("systemd-analyze", "security", "--offline=true", f"--root={tmp_path}"),
            *(f"--threshold={most}", "--no-pager", UNIT.name),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "InaccessiblePaths=-/dev/shm" in UNIT.read_text()
