"""How settings become a scheduler, where agents find the daemon, and the pilot that is shown."""

from __future__ import annotations

import errno
import os
import pwd
import re
import shlex
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from bftrainer.cli import app
from bftrainer.daemon.process import compose
from bftrainer.errors import BftrainerError
from bftrainer.schedulers.shared.instance import instance
from bftrainer.settings.sources import load
from bftrainer.settings.values import Settings
from bftrainer.store.sql import SqlStore
from tests.support.slurm_commands import ANSWERS, DOWN, SCONTROL, Commands

NOWHERE = {"XDG_CONFIG_HOME": "/nowhere", "BFTRAINER_SITE_CONFIG": "/nowhere"}


def given(folder: Path, **overrides: object) -> Settings:
    return load({"state_dir": folder, **overrides}, environ=NOWHERE)


def say(*words: object, **environ: str) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words], env={**NOWHERE, **environ})


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    """A machine with nodes n1 to n16, where partition backfill allows two hours."""
    folder = tmp_path / "slurm"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    commands = Commands(folder)
    shown = SCONTROL.read_text()
    (folder / "shown").write_text(re.sub(r"(PartitionName=backfill .*?MaxTime=)\S+", r"\g<1>02:00:00", shown))
    commands.set("scontrol", f"{ANSWERS}cat > /dev/null; cat shown")
    return commands


def words(result: Result) -> set[str]:
    assert result.exit_code == 0, result.output
    return set(shlex.split(result.stdout.splitlines()[0]))


@pytest.mark.usefixtures("slurm")
def test_a_pilot_is_shown_as_it_would_be_submitted_but_for_its_secret(tmp_path: Path) -> None:
    (tmp_path / "instance").write_text("0a1b2c3d")
    result = say(
        *("pilot", "--dry-run", "--node=n9", "--limit=700", "--state-dir", tmp_path),
        BFTRAINER_SLURM_PARTITION="backfill",
        BFTRAINER_LISTEN="10.0.0.1:4000",
        BFTRAINER_PILOT_PYTHON="/opt/bf trainer/python",
    )
    assert (result.exit_code, result.stderr) == (0, "")
    line, *script = result.stdout.splitlines()
    assert line.startswith("sbatch --parsable --exclusive --no-requeue --job-name=bftrainer-0a1b2c3d-")
    assert {"--partition=backfill", "--nodelist=n9", "--time=11", "--deadline=now+700"} <= set(line.split())
    assert script[0] == "#!/bin/sh"
    (run,) = (line for line in script if line.startswith("exec "))
    assert run.startswith("exec '/opt/bf trainer/python' -P -m bftrainer.agent --node n9 --tag 0000")
    assert "--daemon 10.0.0.1:4000 " in run
    assert "$(printf %s '(secret)')" in script


@pytest.mark.usefixtures("slurm")
@pytest.mark.parametrize(
    ("given", "minutes"),
    [({}, 120), ({"SLURM_MODE": "window"}, 15), ({"SLURM_MODE": "window", "PILOT_MAX_S": "1e6"}, 120)],
)
def test_the_limit_shown_is_the_partitions_where_that_is_less(
    tmp_path: Path, given: dict[str, str], minutes: int
) -> None:
    environ = {f"BFTRAINER_{name}": value for name, value in given.items()}
    result = say(
        *("pilot", "--dry-run", "--node=n9", "--slurm-partition=backfill", "--state-dir", tmp_path), **environ
    )
    assert f"--time={minutes}" in words(result)
    assert not result.stderr


@pytest.mark.usefixtures("slurm")
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--node=n1"], "n1 is not free: allocated; the daemon would submit nothing now"),
        (["--node=n99"], "there is no node 'n99' where pilots go, only n[1-16]"),
        (["--slurm-partition=night"], "Slurm has no partition 'night', only backfill, batch"),
    ],
)
def test_what_stands_against_a_pilot_is_said_beside_it(tmp_path: Path, options: list[str], said: str) -> None:
    result = say("pilot", "--dry-run", "--slurm-partition=backfill", *options, "--state-dir", tmp_path)
    assert result.stderr.startswith("warning: ") and said in result.stderr
    assert words(result)


def test_where_slurm_does_not_answer_the_job_is_shown_and_what_is_not_known(
    slurm: Commands, tmp_path: Path
) -> None:
    slurm.set("scontrol", f"echo '{DOWN}' >&2; exit 1")
    result = say("pilot", "--dry-run", "--state-dir", tmp_path, BFTRAINER_LISTEN="0.0.0.0:4000")
    assert {"--nodelist=NODE", "--time=240"} <= words(result)
    assert result.stderr.startswith("warning: slurmctld is down: ")
    assert "neither limits nor the node are known" in result.stderr
    assert "--daemon 127.0.0.1:4000 " in result.stdout, "agents cannot call 0.0.0.0"


@pytest.mark.usefixtures("slurm")
def test_a_sites_pilot_is_shown_as_its_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = {"MODE": "site", "EXEC_PREFIX": "sudo -n -u {user} --", "SOCKET": "/run/x/daemon.sock"}
    environ = {f"BFTRAINER_{name}": value for name, value in site.items()}
    shown = partial(say, "pilot", "--dry-run", "--state-dir", tmp_path, **environ)
    result = shown("--user=ann")
    assert result.stdout.startswith("sudo -n -u ann -- sbatch ")
    assert "--output=/dev/null" in words(result)
    monkeypatch.setattr("os.geteuid", lambda: 1)
    assert shown().stdout.startswith(f"sudo -n -u {pwd.getpwuid(1).pw_name} -- sbatch ")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    error = shown().exception
    assert isinstance(error, BftrainerError)
    assert "mode site needs --user NAME" in str(error)


@pytest.mark.usefixtures("slurm")
def test_who_may_not_look_into_the_state_directory_is_shown_a_pilot_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for owner, name in ((Path, "stat"), (Path, "open"), (os, "open")):
        original = getattr(owner, name)

        def closed(path: Any, *args: Any, original: Any = original, **others: Any) -> Any:
            if Path(path).parent == tmp_path:
                raise PermissionError(errno.EACCES, "Permission denied", str(path))
            return original(path, *args, **others)

        monkeypatch.setattr(owner, name, closed)
    result = say("pilot", "--dry-run", "--state-dir", tmp_path)
    assert any(word.startswith("--job-name=bftrainer-INSTANCE-") for word in words(result))
    with pytest.raises(BftrainerError, match="another user's"):
        instance(tmp_path, create=True)


@pytest.mark.usefixtures("slurm")
def test_pilots_are_not_submitted_by_hand_nor_for_odd_names(tmp_path: Path) -> None:
    for words in (["--node=n7"], ["--dry-run", "--node=a b"], ["--dry-run", "--user=ann"]):
        result = say("pilot", *words, "--state-dir", tmp_path)
        assert isinstance(result.exception, BftrainerError), words


@pytest.mark.usefixtures("slurm")
def test_looking_at_a_pilot_leaves_nothing_behind(tmp_path: Path) -> None:
    assert say("pilot", "--dry-run", "--state-dir", tmp_path / "none").exit_code == 0
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("option", ["--speed=2", "--nodes=3", "--seed=1"])
def test_what_the_local_scheduler_plays_is_refused_for_slurm(tmp_path: Path, option: str) -> None:
    result = say("daemon", "--scheduler=slurm", option, "--state-dir", tmp_path)
    assert result.exit_code == 2
    assert "only with --scheduler local" in result.output


def test_pilots_are_known_to_the_next_daemon_and_to_no_other(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    made = instance(tmp_path, create=True)
    assert instance(tmp_path, create=True) == made
    assert instance(other, create=True) != made
    (tmp_path / "instance").write_text(made[:3])  # cut off by a full disk
    assert instance(tmp_path, create=False) == "INSTANCE"
    assert len(instance(tmp_path, create=True)) == len(made)


def test_agents_find_the_daemon_at_the_same_place_after_a_restart(tmp_path: Path) -> None:
    settings = given(tmp_path)
    store = SqlStore(settings.database)
    first, place = compose.bind_for_agents(settings, store)
    first.close()
    again, same = compose.bind_for_agents(settings, store)
    assert same == place == f"127.0.0.1:{again.getsockname()[1]}"
    other, elsewhere = compose.bind_for_agents(settings, store)  # somebody has it
    assert elsewhere != place
    again.close()
    other.close()
    store.close()


def test_a_loopback_address_is_named_as_one(tmp_path: Path) -> None:
    settings = given(tmp_path, address="localhost")
    store = SqlStore(settings.database)
    bound, place = compose.bind_for_agents(settings, store)
    assert place == f"127.0.0.1:{bound.getsockname()[1]}"
    bound.close()
    store.close()


def test_an_address_that_agents_can_call(tmp_path: Path) -> None:
    settings = given(tmp_path, listen="0.0.0.0:0", address="login1")
    store = SqlStore(settings.database)
    bound, place = compose.bind_for_agents(settings, store)
    assert place == f"login1:{bound.getsockname()[1]}"
    bound.close()
    store.close()
