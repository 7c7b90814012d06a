"""What systemd is told, when the watchdog is fed, and that the units are correct."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bftrainer.cli.daemon_command import command as daemon
from bftrainer.daemon.systemd import Pulse, Systemd, report
from bftrainer.settings.sources import load

JOBSCRIPTS = Path(__file__).parent.parent.parent.parent / "jobscripts"
NO_SUDO = "bftrainer-no-sudo.conf"


@contextlib.contextmanager
def listening(address: str) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as inbox:
        inbox.bind(f"\0{address[1:]}" if address.startswith("@") else address)
        inbox.settimeout(20)
        yield inbox


@pytest.mark.parametrize("abstract", [False, True])
def test_states_are_told_through_files_and_abstract_sockets(tmp_path: Path, abstract: bool) -> None:
    address = f"@bftrainer-test-{tmp_path}"[:100] if abstract else str(tmp_path / "notify")
    with listening(address) as inbox:
        systemd = Systemd.of({"NOTIFY_SOCKET": address}, 1)
        systemd.ready()
        systemd.status("3 nodes\nREADY=1")
        systemd.status("3 nodes READY=1")  # nothing new
        systemd.reloading()
        systemd.stopping()
        assert [inbox.recv(1000) for _ in range(2)] == [b"READY=1", b"STATUS=3 nodes READY=1"]
        reloading = inbox.recv(1000).decode().splitlines()
        assert reloading[0] == "RELOADING=1"
        assert int(reloading[1].removeprefix("MONOTONIC_USEC=")) > 0
        assert inbox.recv(1000) == b"STOPPING=1"


def test_a_status_may_have_any_text(tmp_path: Path) -> None:
    address = str(tmp_path / "notify")
    with listening(address) as inbox:
        systemd = Systemd.of({"NOTIFY_SOCKET": address}, 1)
        systemd.status("half a pair \ud800, \x1b[2J")
        systemd.status("x" * 1_000_000)
        assert inbox.recv(10_000) == rb"STATUS=half a pair \ud800, \x1b[2J"
        assert inbox.recv(10_000) == b"STATUS=" + b"x" * 2000


def test_nobody_to_tell_and_a_supervisor_that_does_not_listen_are_borne(tmp_path: Path) -> None:
    Systemd.of({}, 1).ready()
    Systemd.of({"NOTIFY_SOCKET": str(tmp_path / "none")}, 1).ready()
    with listening(str(tmp_path / "full")):
        systemd = Systemd.of({"NOTIFY_SOCKET": str(tmp_path / "full")}, 1)
        for _ in range(10_000):  # more than any queue takes: it must not wait
            systemd.ping()


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"WATCHDOG_USEC": "30000000"}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "7"}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "8"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({}, None),
    ],
)
def test_the_watchdog_is_ours_only_if_it_is_meant_for_this_process(
    environ: dict[str, str], expected: float | None
) -> None:
    assert Systemd.of(environ, 7).watchdog_s == expected


class Inbox(Systemd):
    """Remembers what would be sent."""

    def __init__(self, watchdog_s: float) -> None:
        super().__init__("nowhere", watchdog_s)
        self.pings = 0
        self.said: list[str] = []

    def _send(self, message: str) -> None:
        self.pings += message == "WATCHDOG=1"
        self.said.append(message)


def test_the_watchdog_goes_hungry_while_an_event_takes_too_long() -> None:
    now = 0.0
    inbox, pulse = Inbox(watchdog_s=0.02), Pulse(lambda: now)

    async def until(pings: int) -> None:
        async with asyncio.timeout(30):
            while inbox.pings < pings:
                await asyncio.sleep(0.001)

    async def told(text: str) -> None:
        async with asyncio.timeout(30):
            while f"STATUS={text}" not in inbox.said:
                await asyncio.sleep(0.001)

    async def story() -> None:
        nonlocal now
        text = "idle"
        reporting = asyncio.create_task(report(inbox, pulse, lambda: text))
        await until(2)
        with pulse.at_work():
            before = inbox.pings
            await until(before + 2)  # long work is no fault yet
            now, before = 0.02, inbox.pings
            for text in ("stuck", "still stuck", "for ever"):  # two rounds without food, at least
                await told(text)
            assert inbox.pings == before
        await until(before + 1)
        reporting.cancel()

    asyncio.run(story())


# --- units -----------------------------------------------------------------------------------------

needs_systemd = pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd-analyze here")


def analyse(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["systemd-analyze", *words],
        check=False,
        cwd=folder,
        capture_output=True,
        text=True,
        env={"XDG_RUNTIME_DIR": str(folder), "PATH": "/usr/bin:/bin"},
    )


@pytest.fixture
def units(tmp_path: Path) -> Path:
    """The units, with a program that is there: verify looks for it."""
    for path in JOBSCRIPTS.glob("*.service"):
        text, count = re.subn(r"(?m)^ExecStart=\S+", "ExecStart=/bin/true", path.read_text(encoding="utf-8"))
        assert count == 1
        (tmp_path / path.name).write_text(text, encoding="utf-8")
    return tmp_path


@needs_systemd
@pytest.mark.parametrize(
    ("unit", "drop_in", "exposure"),
    [
        # sudo needs what system call filters would forbid; the drop-in is for sites without
        ("bftrainer.service", None, 65),
        ("bftrainer.service", NO_SUDO, 20),
        ("bftrainer-user.service", None, 70),
    ],
)
def test_units_are_valid_and_as_closed_as_promised(
    units: Path, unit: str, drop_in: str | None, exposure: int
) -> None:
    if drop_in:
        folder = units / f"{unit}.d"
        folder.mkdir()
        shutil.copy(JOBSCRIPTS / drop_in, folder)
    manager = ["--user"] if "user" in unit else []
    done = analyse(units, *manager, "verify", "--man=no", f"./{unit}")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    done = analyse(
        units, "security", *manager, "--offline=true", "--no-pager", f"--threshold={exposure}", f"./{unit}"
    )
    assert done.returncode == 0, done.stdout[-300:] + done.stderr
    print(done.stdout.splitlines()[-1])


def test_a_users_daemon_is_not_what_the_sites_file_says(tmp_path: Path) -> None:
    """%E is the folder of the user's settings."""
    unit = (JOBSCRIPTS / "bftrainer-user.service").read_text().replace("%E", str(tmp_path))
    (line,) = re.findall(r"^ExecStart=\S+ daemon (.*)$", unit, re.MULTILINE)
    (asserted,) = re.findall(r"^AssertPathExists=(.*)$", unit, re.MULTILINE)
    file = daemon.make_context("daemon", line.split()).params["config"]
    assert file == Path(asserted) == tmp_path / "bftrainer" / "config.yaml"
    file.parent.mkdir()
    file.write_text("slurm_partition: backfill\n")
    site = tmp_path / "site.yaml"
    site.write_text("mode: site\nexec_prefix: sudo -u {user} --\nstate_dir: /nowhere\nsocket: /run/x\n")
    found = load({}, file=file, environ={"BFTRAINER_SITE_CONFIG": str(site)})
    assert (found.mode, found.slurm_partition) == ("single", "backfill")


def test_only_the_drop_in_has_options_with_which_sudo_would_not_run() -> None:
    implying = r"^(SystemCall|Restrict|LockPers|MemoryDeny|PrivateDev|ProtectKernel|ProtectClock|ProtectHost)"
    assert not re.findall(implying, (JOBSCRIPTS / "bftrainer.service").read_text(), re.MULTILINE)
    assert re.findall(implying, (JOBSCRIPTS / NO_SUDO).read_text(), re.MULTILINE)
