"""`bftrainer replay --iterations`: figures of each policy, and options and logs that are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bftrainer.cli import app
from bftrainer.cli.shared.replays.iterations import NAMES
from bftrainer.replay.iterations.policies import POLICIES
from bftrainer.replay.iterations.workload import SHARES

SMALL = (
    "--jobs",
    "20",
    "--devices",
    "20",
    "--work-hours",
    "0.005",
    "--longest-hours",
    "0.01",
    "--every",
    "1",
)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log with jobs of all sizes."""
    path = tmp_path / "philly.csv"
    rows = [f"2017-10-09 07:01:55,{60 + 7 * place},{gpus}" for place in range(5) for gpus in SHARES]
    path.write_text("\n".join(["timestamp,duration,num_gpus", *rows]) + "\n")
    return path


def invoked(*words: object) -> Result:
    """Run the command line."""
    return CliRunner().invoke(app, ["replay", *map(str, words)], env={"COLUMNS": "200"})


def test_every_policy_has_figures(log: Path) -> None:
    asked = [word for name in NAMES for word in ("--policy", name)]
    done = invoked(log, "--iterations", *SMALL, "--interval", 5, "--json", *asked)
    assert done.exit_code == 0, done.output
    found = json.loads(done.output)["policies"]
    assert set(found) == set(POLICIES)
    for name, figures in found.items():
        assert figures["makespan_h"] > 0.005 * (0.5 if POLICIES[name].partial else 1), name
        assert 0 < figures["devices_busy"] <= 1
        assert figures["completion_h"]["mean"] <= figures["completion_h"]["max"] <= figures["makespan_h"]
    assert found["jigsaw"]["device_hours"] < found["full-product"]["device_hours"]
    assert found["tiresias"]["device_hours"] == pytest.approx(found["full-las"]["device_hours"])


def test_a_seed_gives_the_same_jobs(log: Path) -> None:
    words = (log, "--iterations", *SMALL, "--json", "--policy", "tiresias")
    first, again, other = (
        json.loads(invoked(*words, "--seed", seed).output)["policies"]["tiresias"]["makespan_h"]
        for seed in (3, 3, 4)
    )
    assert first == again != other


def test_the_table_compares_with_the_first(log: Path) -> None:
    done = invoked(log, "--iterations", *SMALL, "--policy", "tiresias", "--policy", "gandiva")
    assert done.exit_code == 0, done.output
    assert "+0.0%" in done.output
    assert "gandiva" in done.output


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--iterations", "--nodes", "3"), "--nodes: not with --iterations"),
        (("--iterations", "--work-hours", "1e4"), "Give more or longer jobs"),
        (("--iterations", "--devices", "8"), "for 8 devices, so the replay would not end. Give more devices"),
        (
            ("--iterations", "--device-memory", "1"),
            "of a device with 1, so the replay would not end",
        ),
        (("--policy", "jigsaw"), "--policy: only with --iterations"),
    ],
)
def test_what_cannot_be_replayed_says_why(log: Path, words: tuple[str, ...], why: str) -> None:
    done = invoked(log, *words)
    assert done.exit_code != 0
    assert why in f"{done.output} {done.exception}"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a,b\n1,2\n", "no column duration, num_gpus"),
        ("duration,num_gpus\n60,1\n", "no job with 2 GPUs"),
        ("duration,num_gpus\nx,1\n", ":2: duration, num_gpus x, 1 cannot be used. Give numbers"),
        ("duration,num_gpus\nnan,1\n", ":2: duration nan cannot be used. Give 0 to 1e9 seconds"),
    ],
)
def test_a_log_that_is_none_is_refused(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "log.csv"
    path.write_text(text)
    done = invoked(path, "--iterations")
    assert done.exit_code != 0
    assert why in f"{done.output} {done.exception}"
