"""The demonstration plays its four acts, and the replay of its record predicts what it processed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bftrainer.replay.calibrate import history
from bftrainer.replay.calibrate.compare import compare
from bftrainer.settings.client.given import PREFIX

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 400
"""The acts end by themselves long before, also where much else runs."""
ENOUGH = 200_000
"""Samples: fewer would be little to predict."""


@dataclass(frozen=True)
class Demonstration:
    """What `make demo` printed, the record that it kept, and what its page showed while it ran."""

    out: str
    kept: Path
    page: str


@pytest.fixture(scope="module")
def demonstration(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demonstration]:
    kept = tmp_path_factory.mktemp("demo") / "kept"
    demo = subprocess.Popen(
        [
            *("make", "--old-file=install", f"VENV={sys.prefix}", "demo"),
            *(f"SECONDS={SECONDS}", f"KEEP={kept}"),
        ],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={k: v for k, v in os.environ.items() if not k.startswith((PREFIX, "MAKE"))},
    )
    assert demo.stdout is not None
    said, url = "", None
    while url is None and (line := demo.stdout.readline()):
        said += line
        url = re.search(r"the page is at (http://\S+)#token=", line)
    page = urllib.request.urlopen(url[1]).read().decode() if url else ""  # noqa: S310  http, as matched
    said += demo.communicate(timeout=SECONDS + 300)[0]
    assert demo.returncode == 0, said
    yield Demonstration(said, kept, page)


def test_four_acts_are_played_with_causes_and_results(demonstration: Demonstration) -> None:
    out = demonstration.out
    for act in ("1, grows", "2, gives back", "3, a node dies", "4, loses all"):
        assert len(re.findall(rf" s  == act {act}: ", out)) >= 2, out
    assert "Not played" not in out, out
    assert int(re.findall(r"rescales (\d+)", out)[0]) >= 8, out
    assert int(re.findall(r"nodes joined: .*\((\d+)\)", out)[0]) >= 3, out
    assert "steps lost while a member survived: 0" in out
    assert "<title>bftrainer" in demonstration.page
    assert re.search(r"trains [\d,]+ steps again, [\d.]+ s of work", out), out
    root = ElementTree.parse(ROOT / "build" / "demo.svg").getroot()  # noqa: S314  our own
    assert "4. loses all" in "".join(root.itertext())


def test_a_replay_predicts_the_samples_of_the_demonstration_that_it_replays(
    demonstration: Demonstration,
) -> None:
    comparison = compare(history.load(demonstration.kept))
    said = [(line.name, line.recorded, line.predicted) for line in comparison.trainers]
    assert comparison.total.recorded > ENOUGH, said
    assert comparison.total.difference is not None
    assert abs(comparison.total.difference) < 0.05, said
    for line in comparison.trainers:
        assert abs(line.predicted - line.recorded) < 0.05 * comparison.total.recorded, said
