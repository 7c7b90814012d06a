"""Takes runs of main jobs on new testbeds, and keeps their results: what is there is not taken again."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.testbeds.harvest import Harvest, Outcome
from benchmarks.testbeds.impact.condition import Condition
from benchmarks.testbeds.impact.differences import WITH
from benchmarks.testbeds.runs import MainRun
from benchmarks.testbeds.workload import MainJob

SEEN_EVERY_S = 1.0
SHOWN_EVERY = 10
"""Main jobs between two lines of progress."""


@dataclass(frozen=True, slots=True)
class Taken:
    """A run that was taken: its figures as `Outcome` has them, its main jobs, the logs, and the commit."""

    outcome: Mapping[str, Any]
    runs: tuple[MainRun, ...]
    logs: Mapping[str, str]
    commit: str


def stored(folder: Path, condition: Condition, seed: int) -> Taken | None:
    """Return the run that lies in a folder, if it was taken with these options."""
    try:
        found = json.loads((folder / "result.json").read_text("utf-8"))
    except FileNotFoundError:
        return None
    if found["options"] != _options(condition, seed):
        return None
    logs = {path.stem: path.read_text("utf-8", "replace") for path in folder.glob("*.log")}
    outcome = found["outcome"]
    return Taken(outcome, tuple(MainRun(**run) for run in outcome["runs"]), logs, found["commit"])


def take(
    folder: Path,
    condition: Condition,
    seed: int,
    mode: str,
    specs: Sequence[Path],
    tell: Callable[[str], None],
) -> Taken:
    """Take one run on a new testbed and store it; `tell` gets lines of progress.

    Raises:
        BftrainerError: the run came to no end.
    """
    jobs, phase_s = condition.main_jobs(seed), _phase_s(condition, seed, mode)
    played = condition.played(jobs, with_trainers=mode == WITH, begin_after_s=phase_s)
    if played is None:
        played = _harvested(condition, jobs, specs if mode == WITH else (), phase_s, tell)
    return _store(folder, _options(condition, seed), *played)


def _harvested(
    condition: Condition,
    jobs: Sequence[MainJob],
    specs: Sequence[Path],
    begin_after_s: float,
    tell: Callable[[str], None],
) -> tuple[Outcome, dict[str, str]]:
    """A run on a new testbed: its outcome, and what was logged."""
    settings = {"headroom": condition.headroom} if condition.headroom else {}
    shown = -1
    with (
        condition.machine() as machine,
        Harvest(machine, jobs, specs, settings=settings, begin_after_s=begin_after_s) as harvest,
    ):
        for scene in harvest.scenes(SEEN_EVERY_S):
            ended = sum(bool(run.state) for run in scene.runs)
            if ended // SHOWN_EVERY != shown:
                shown = ended // SHOWN_EVERY
                tell(f"  {ended} main jobs have ended")
        return harvest.finish(), harvest.logs()


def _phase_s(condition: Condition, seed: int, mode: str) -> float:
    """Return the load's offset (s) in the batch system's scheduling interval, which moves all starts. At
    random: otherwise the two runs without would be alike in it, and the one with would not."""
    rng = random.Random(f"{seed} {mode}")
    return rng.uniform(0, condition.cycle_s())


def _store(folder: Path, options: Mapping[str, Any], outcome: Outcome, logs: Mapping[str, str]) -> Taken:
    """Write a run; result.json comes last and at once, so that what was interrupted is taken again."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "result.json").unlink(missing_ok=True)
    for name, text in logs.items():
        (folder / f"{name}.log").write_text(text, "utf-8")
    content, commit = asdict(outcome), _commit()
    draft = folder / "result.draft"
    draft.write_text(json.dumps({"options": options, "commit": commit, "outcome": content}), "utf-8")
    draft.replace(folder / "result.json")
    return Taken(content, outcome.runs, logs, commit)


def _commit() -> str:
    """Return the commit of the code that runs; "" outside a git repository."""
    command = ["git", "describe", "--always", "--dirty"]
    done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _options(condition: Condition, seed: int) -> dict[str, Any]:
    known = asdict(condition)
    if not condition.headroom:  # as in runs from before there was such an option
        del known["headroom"]
    return {**known, "seed": seed}
