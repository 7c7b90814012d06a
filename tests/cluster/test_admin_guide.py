"""docs/admin.md, step by step on a real testbed: its blocks are run as they stand there."""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from slurm.testbed.ports import free_ports

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
UNIT = ROOT / "jobscripts" / "bftrainer.service"
GUIDE = (ROOT / "docs" / "admin.md").read_text(encoding="utf-8")
SYSTEMD = Path("/run/systemd/system").is_dir()
MADE = [
    Path(p)
    for p in (
        "/opt/bftrainer",
        "/etc/bftrainer",
        "/etc/sudoers.d/bftrainer",
        "/etc/systemd/system/bftrainer.service",
        "/usr/local/bin/bftrainer",
        "/var/lib/bftrainer",
        "/run/bftrainer",
        "/srv/testbed",
    )
]
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ACCOUNTS = ("bftrainer", "user1", "user2")
GROUP = "trainers"
PORTS = ("9464", "7464")
PASSED_ON = re.compile(r"PIP_\w+|\w+_proxy|SSL_\w+|(REQUESTS|CURL)_CA_BUNDLE", re.IGNORECASE)
"""Variables without which this machine may reach no package index."""
APT = """\
apt-get() {
    for try in 1 2 3 4 5 6 7 8 9 10; do  # another apt-get may have the lists, for which it does not wait
        if command apt-get -o DPkg::Lock::Timeout=60 "$@"; then return; fi
        sleep 3
    done
    return 1
}
"""
LIMIT_S = 800


@dataclass(frozen=True)
class Block:
    title: str
    code: str


def blocks() -> list[Block]:
    """The shell blocks that are meant for this machine, with the headings that they stand under."""
    found, title = [], ""
    pattern = (
        r"^## (?P<title>.*?)$|(?:^<!-- (?P<where>with|without) systemd -->\n)?^```sh\n(?P<code>.*?)^```$"
    )
    for match in re.finditer(pattern, GUIDE, re.MULTILINE | re.DOTALL):
        if match["title"]:
            title = match["title"]
        elif match["where"] in (None, "with" if SYSTEMD else "without"):
            found.append(Block(title, match["code"]))
    return found


def test_the_guide_has_steps() -> None:
    titles = [block.title for block in blocks()]
    assert [t.split(".")[0] for t in dict.fromkeys(titles)] == [str(n) for n in range(1, 13)]


@pytest.fixture
def nothing_installed() -> Iterator[None]:
    if any(path.exists() for path in MADE):
        pytest.skip("bftrainer is installed on this machine: the guide would change it")
    asked = [shutil.which("python3", path=PATH) or "false", "-c", "import sys; print(*sys.version_info[:2])"]
    version = subprocess.run(asked, check=False, capture_output=True, text=True).stdout.split()
    if version != [str(number) for number in sys.version_info[:2]]:
        pytest.skip("this machine's python3 is not the version that these tests run on and lend packages of")
    if taken := [name for name in (*ACCOUNTS, GROUP) if is_there(name)]:
        pytest.skip(f"{', '.join(taken)}: this machine has them already, and the guide would remove them")
    yield
    subprocess.run(["bash", "-c", CLEAN], check=False, cwd=ROOT, capture_output=True)


def is_there(name: str) -> bool:
    """Whether there is an account or a group of this name."""
    return name in {*(u.pw_name for u in pwd.getpwall()), *(g.gr_name for g in grp.getgrall())}


@pytest.fixture
def free() -> Iterator[dict[str, str]]:
    """The guide's ports -> some that nobody has."""
    with free_ports(len(PORTS)) as found:
        yield dict(zip(PORTS, map(str, found), strict=True))


CLEAN = f"""
{sys.executable} -m slurm.testbed down --dir /srv/testbed
rm -rf {" ".join(map(str, MADE))} /etc/systemd/system/bftrainer.service.d /var/log/bftrainer.log
userdel bftrainer; userdel -r user1; userdel -r user2; groupdel {GROUP}
"""


@pytest.mark.timeout(LIMIT_S + 100)
def test_every_step_of_the_guide_works(nothing_installed: None, free: dict[str, str], tmp_path: Path) -> None:
    """One shell runs all blocks. bftrainer's dependencies come from this test's own Python, as links below
    /opt: a checkout may be where neither the daemon nor users can look, such as /tmp or /root.

    Without systemd, the daemon gets the walls around it that the unit asks for all the same.
    """
    (tmp_path / "setpriv").symlink_to(HERE / "as_in_the_unit.sh")
    (line,) = re.findall(r"^CapabilityBoundingSet=(.+)$", UNIT.read_text(), re.MULTILINE)
    own = Path(sysconfig.get_path("purelib"))
    there = "/opt/bftrainer/borrowed"
    borrow = (
        f"cp -al {own} {there} || {{ rm -rf {there}; cp -a {own} {there}; }}\n"
        f"echo {there} > $(echo /opt/bftrainer/lib/python3.*/site-packages)/borrowed.pth"
    )
    script = ["set -euxo pipefail", APT]
    for block in blocks():
        code = re.sub("|".join(PORTS), lambda port: free[port[0]], block.code)
        script += [f": '### {block.title}'", re.sub(r"(-m venv .*)", rf"\1\n{borrow}", code)]
    environ = {
        **{name: value for name, value in os.environ.items() if PASSED_ON.fullmatch(name)},
        "no_proxy": ",".join(
            filter(None, ("127.0.0.1", os.environ.get("no_proxy", os.environ.get("NO_PROXY"))))
        ),
        "HOME": "/root",
        "PATH": f"{tmp_path}:{PATH}",
        "DEBIAN_FRONTEND": "noninteractive",
        "PIP_NO_DEPS": "1",
        "CAPABILITIES": ",".join(f"+{name.removeprefix('CAP_').lower()}" for name in line.split()),
    }
    said = tmp_path / "said"
    with said.open("wb") as out:
        shell = subprocess.Popen(
            ["bash", "-c", "\n".join(script)],
            cwd=ROOT,
            env=environ,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
        try:
            code = shell.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            code = -1
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
    daemon = Path("/var/log/bftrainer.log")
    log = daemon.read_text(errors="replace") if daemon.exists() else ""
    assert code == 0, f"{said.read_text(errors='replace')[-4000:]}\n--- daemon\n{log[-3000:]}"
    assert not any(path.exists() for path in MADE), "removed by its last step"
