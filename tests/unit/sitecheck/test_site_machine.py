"""What the check of a site says of its machine: limits, sudo's rule, munge, systemd's unit."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from pathlib import Path

import pytest

from bftrainer.model.finding import Level
from bftrainer.settings.sources import load
from bftrainer.settings.values import Settings
from bftrainer.sitecheck import machine

RULE = """\
Matching Defaults entries for bftrainer on login1:
    !requiretty, env_keep+=SLURM_CONF

User bftrainer may run the following commands on login1:
    (%trainers) NOPASSWD: /usr/bin/sbatch, /usr/bin/scancel
"""
UNIT = {
    "LoadState": "loaded",
    "ActiveState": "active",
    "User": "bftrainer",
    "MemoryMax": "4294967296",
    "LimitNOFILE": "65536",
    "WatchdogUSec": "30s",
    "OOMPolicy": "continue",
    "KillMode": "process",
}


def settings(folder: Path, **given: object) -> Settings:
    return load(
        {"state_dir": folder, **given}, environ={"XDG_CONFIG_HOME": "/none", "BFTRAINER_SITE_CONFIG": "/none"}
    )


def site(folder: Path, sudo: Path | str) -> Settings:
    return settings(
        folder, mode="site", socket="/run/bftrainer/daemon.sock", exec_prefix=f"{sudo} -n -u {{user}} --"
    )


def a_sudo(folder: Path, *, may: str) -> Path:
    """A program that answers as `sudo -l` does; it lets `may` be."""
    folder.mkdir()
    path = folder / "sudo"
    path.write_text(
        f"#!{sys.executable}\nimport sys\n"
        "words = sys.argv[1:]\n"
        "assert '-l' in words and '-n' in words, 'it only lists'\n"
        "if '-u' in words:\n"
        f"    sys.exit(words[words.index('-u') + 1] != {may!r} and 'Sorry, not allowed')\n"
        f"print({RULE!r})\n"
    )
    path.chmod(0o755)
    return path


def test_the_rule_is_asked_for_a_user_of_the_site(tmp_path: Path) -> None:
    own = site(tmp_path, a_sudo(tmp_path / "bin", may="alice"))
    (found,) = asyncio.run(machine.sudo(own, "alice"))
    assert (found.level, "as alice, and nothing else" in found.found) == (Level.OK, True)
    refused = asyncio.run(machine.sudo(own, "mallory"))
    assert [one.level for one in refused] == [Level.WRONG, Level.WRONG]
    assert "as mallory" in refused[0].found and "a member of the group" in refused[0].remedy
    assert [one.level for one in asyncio.run(machine.sudo(own, ""))] == [Level.NOT_CHECKED]


def test_commands_are_looked_for_where_the_settings_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("path", "lsf"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "bsub").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    own = settings(tmp_path, scheduler="lsf")
    assert machine.programs(own) == {"bsub": str(tmp_path / "path" / "bsub"), "bkill": "/usr/bin/bkill"}
    own = settings(tmp_path, scheduler="lsf", lsf_bin=str(tmp_path / "lsf"))
    assert machine.programs(own) == {name: str(tmp_path / "lsf" / name) for name in ("bsub", "bkill")}
    assert machine.programs(settings(tmp_path, scheduler="slurm"))["sbatch"] == "/usr/bin/sbatch"


@pytest.mark.parametrize(
    ("said", "code"),
    [("a password is required", 1), ("User bftrainer is not allowed to run sudo on login1.", 0)],
)
def test_a_site_without_its_rule_is_wrong(tmp_path: Path, said: str, code: int) -> None:
    sudo = tmp_path / "sudo"
    sudo.write_text(f"#!/bin/sh\necho '{said}' >&2\nexit {code}\n")
    sudo.chmod(0o755)
    (found,) = asyncio.run(machine.sudo(site(tmp_path, sudo), ""))
    assert (found.level, said in found.found) == (Level.WRONG, True)
    assert asyncio.run(machine.sudo(site(tmp_path, "doas"), "alice"))[0].level is Level.NOT_CHECKED
    assert asyncio.run(machine.sudo(settings(tmp_path), "alice")) == []


def test_the_unit_of_the_repository_is_right() -> None:
    assert [one.level for one in machine.unit_findings(UNIT)] == [Level.OK]
    text = (Path(__file__).parents[3] / "jobscripts" / "bftrainer.service").read_text()
    for line in (
        "OOMPolicy=continue",
        "KillMode=process",
        "LimitNOFILE=65536",
        "WatchdogSec=30",
        "MemoryMax=",
    ):
        assert f"\n{line}" in text


@pytest.mark.parametrize(
    ("name", "value", "level"),
    [
        ("OOMPolicy", "stop", Level.WRONG),
        ("KillMode", "control-group", Level.WRONG),
        ("WatchdogUSec", "0", Level.WARNING),
        ("MemoryMax", "infinity", Level.WARNING),
        ("LimitNOFILE", "1024", Level.WARNING),
        ("LoadState", "not-found", Level.WARNING),
    ],
)
def test_a_unit_without_its_limits_is_told(name: str, value: str, level: Level) -> None:
    (found,) = machine.unit_findings({**UNIT, name: value})
    assert found.level is level
    assert "jobscripts/bftrainer.service" in found.remedy


def test_the_daemons_own_limit_of_descriptors_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "DESCRIPTORS", 1)
    here = {"host": socket.gethostname(), "pid": os.getpid(), "since": "now"}
    (tmp_path / "daemon.lock").write_text(json.dumps(here))
    found = machine.descriptors(settings(tmp_path))
    assert (found.level, found.found.startswith("the daemon may open")) == (Level.OK, True)
    (tmp_path / "daemon.lock").write_text(json.dumps({**here, "host": "elsewhere"}))
    monkeypatch.setattr(machine, "DESCRIPTORS", 1 << 40)
    found = machine.descriptors(settings(tmp_path))
    assert (found.level, found.found.startswith("this shell may open")) == (Level.WARNING, True)


def test_a_munged_that_does_not_answer_is_wrong(tmp_path: Path) -> None:
    assert asyncio.run(machine.munge(settings(tmp_path))).level is Level.OK
    own = settings(tmp_path, munge=True, listen_users="127.0.0.1:7465", munge_socket=str(tmp_path / "none"))
    found = asyncio.run(machine.munge(own))
    assert (found.level, "start munged" in found.remedy) == (Level.WRONG, True)


@pytest.mark.parametrize(
    ("listen", "level"), [("10.0.0.1:7464", Level.WARNING), ("10.0.0.1:764", Level.OK), ("", None)]
)
def test_users_can_take_ports_above_those_of_the_system(
    tmp_path: Path, listen: str, level: Level | None
) -> None:
    start = tmp_path / "start"
    start.write_text("1024\n")
    given = {"socket": "/run/bftrainer/daemon.sock", "exec_prefix": "sudo -n -u {user} --", "listen": listen}
    found = machine.ports(settings(tmp_path, mode="site", **given), start)
    assert [finding.level for finding in found] == ([] if level is None else [level])
    assert machine.ports(settings(tmp_path, listen=listen), start) == []
