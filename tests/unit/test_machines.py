"""How settings become a scheduler, where agents find the daemon, and the pilot that is shown."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bftrainer.cli import app, machines
from bftrainer.errors import BftrainerError
from bftrainer.settings import Settings, load
from bftrainer.store import SqlStore

NOWHERE = {"XDG_CONFIG_HOME": "/nowhere", "BFTRAINER_SITE_CONFIG": "/nowhere"}


def given(folder: Path, **overrides: object) -> Settings:
    return load({"state_dir": folder, **overrides}, environ=NOWHERE)


def say(*words: object, **environ: str) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words], env={**NOWHERE, **environ})


def test_a_pilot_is_shown_as_it_would_be_submitted_but_for_its_secret(tmp_path: Path) -> None:
    (tmp_path / "instance").write_text("0a1b2c3d")
    result = say(
        *("pilot", "--dry-run", "--node=n7", "--limit=700", "--state-dir", tmp_path),
        BFTRAINER_SLURM_PARTITION="backfill",
        BFTRAINER_LISTEN="10.0.0.1:4000",
        BFTRAINER_PILOT_PYTHON="/opt/bf trainer/python",
    )
    assert result.exit_code == 0, result.output
    line, *script = result.output.splitlines()
    assert line.startswith("sbatch --parsable --exclusive --no-requeue --job-name=bftrainer-0a1b2c3d-")
    assert {"--partition=backfill", "--nodelist=n7", "--time=11", "--deadline=now+700"} <= set(line.split())
    assert script[0] == "#!/bin/sh"
    assert "export BFTRAINER_SECRET='(secret)'" in script
    assert script[-2].startswith("exec '/opt/bf trainer/python' -m bftrainer.agent --node n7 --tag 0000")
    assert "--daemon 10.0.0.1:4000 " in script[-2]


def test_pilots_are_not_submitted_by_hand_nor_for_odd_names(tmp_path: Path) -> None:
    for words in (["--node=n7"], ["--dry-run", "--node=a b"], ["--dry-run", "--user=ann"]):
        result = say("pilot", *words, "--state-dir", tmp_path)
        assert isinstance(result.exception, BftrainerError), words


def test_looking_at_a_pilot_leaves_nothing_behind(tmp_path: Path) -> None:
    assert say("pilot", "--dry-run", "--state-dir", tmp_path / "none").exit_code == 0
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("option", ["--speed=2", "--nodes=3", "--seed=1"])
def test_what_the_local_scheduler_plays_is_refused_for_slurm(tmp_path: Path, option: str) -> None:
    result = say("daemon", "--scheduler=slurm", option, "--state-dir", tmp_path)
    assert result.exit_code == 2
    assert "is for --scheduler local; it is slurm" in result.output


def test_pilots_are_known_to_the_next_daemon_and_to_no_other(tmp_path: Path) -> None:
    first, second = given(tmp_path), given(tmp_path / "other")
    second.state_dir.mkdir()
    made = machines.instance(first, make=True)
    assert machines.instance(first, make=True) == made
    assert machines.instance(second, make=True) != made


def test_agents_find_the_daemon_at_the_same_place_after_a_restart(tmp_path: Path) -> None:
    settings = given(tmp_path)
    store = SqlStore(settings.database)
    first, place = machines.bind_for_agents(settings, store)
    first.close()
    again, same = machines.bind_for_agents(settings, store)
    assert same == place == f"127.0.0.1:{again.getsockname()[1]}"
    other, elsewhere = machines.bind_for_agents(settings, store)  # somebody has it
    assert elsewhere != place
    again.close()
    other.close()
    store.close()


def test_an_address_that_agents_can_call(tmp_path: Path) -> None:
    settings = given(tmp_path, listen="0.0.0.0:0", address="login1")
    store = SqlStore(settings.database)
    bound, place = machines.bind_for_agents(settings, store)
    assert place == f"login1:{bound.getsockname()[1]}"
    bound.close()
    store.close()
