"""What a site adds to its LSF: sections are whole, and say what the daemon and its checks expect."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bftrainer.model.finding import Level
from bftrainer.schedulers.lsf.check.findings import policy_findings
from bftrainer.settings.batch.pilots import PILOT_MAX_S
from bftrainer.settings.schedulers import SCHEDULERS
from bftrainer.settings.sources import load

SITE = Path(__file__).parents[3] / "lsf" / "site"
PARTS = sorted(path for path in SITE.glob("lsb.*"))


def values(path: Path) -> dict[str, str]:
    """The parameters of the one section of a file."""
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    kind = re.fullmatch(r"Begin (\w+)", lines[0])
    assert kind is not None and lines[-1] == f"End {kind[1]}", path
    pairs = (line.partition("=") for line in lines[1:-1])
    return {name.strip(): value.strip() for name, _, value in pairs}


def test_each_file_is_one_whole_section() -> None:
    assert len(PARTS) == 5
    assert all(values(path) for path in PARTS)


@pytest.mark.parametrize("mode", PILOT_MAX_S)
def test_the_queue_is_what_the_check_asks_for_and_fits_the_longest_pilot(mode: str) -> None:
    queue = values(SITE / f"lsb.queues.{mode}")
    name = queue["QUEUE_NAME"]
    assert 60 * int(queue["RUNLIMIT"]) >= PILOT_MAX_S[mode]
    shown = {"SCHEDULING POLICIES": "BACKFILL" if queue["BACKFILL"] == "Y" else ""}
    shown |= {"PREEMPTION": queue.get("PREEMPTION", "")}
    found = policy_findings({name: shown}, name, mode)
    assert [one.level for one in found] == [Level.OK]


def test_sudo_allows_and_keeps_what_pilots_need() -> None:
    text, lsf = (SITE / "sudoers").read_text(), SCHEDULERS["lsf"]
    allowed = re.search(r"NOPASSWD: (.+)$", text, re.MULTILINE)
    kept = re.search(r'env_keep \+= "(.+)"$', text, re.MULTILINE)
    assert allowed is not None and kept is not None
    assert tuple(Path(word).name for word in allowed[1].split(", ")) == lsf.orders
    assert set(lsf.needed) <= set(kept[1].split()) == set(lsf.environ)


def test_the_settings_of_a_machine_like_summit_are_settings() -> None:
    found = load({}, file=SITE / "config.yaml", environ={})
    assert (found.scheduler, found.lsf_gpus, found.lsf_launch_slots) == ("lsf", 6, 1)
    assert found.lsf_queue == values(SITE / "lsb.queues.preempt")["QUEUE_NAME"]
