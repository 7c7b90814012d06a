"""Takes runs of main jobs on new testbeds, and keeps their results: what is there is not taken again."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from slurm.impact.differences import WITH
from slurm.testbed import Testbed
from slurm.testbed.harvest import Harvest, Outcome
from slurm.testbed.mix import MIXES, mixed
from slurm.testbed.plan import GPUS
from slurm.testbed.probe import MainRun
from slurm.testbed.workload import MainJob, requests_for

SEEN_EVERY_S = 1.0
INTERVAL_S, STOCK_INTERVAL_S = 1.0, 30.0
"""How often Slurm's backfill runs, on a testbed and by default."""
SHOWN_EVERY = 10
"""A line of progress comes after so many main jobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """What the runs of a comparison have in common.

    Attributes:
        mix: A name of `mix.MIXES`.
        nodes: Of the testbed.
        jobs: Main jobs; an array is one of them.
        seconds: Within which they are submitted.
        load: The share of node-time that they need.
        shared: Whether main jobs share nodes.
        stock: Slurm's own scheduling intervals and parameters.
        slow_polls_s: What a poll takes longer.
        log: An SWF log that the jobs come from; "": they are generated.
        first: Jobs of the log to leave out.
        headroom: The daemon's setting; "": as by default.
        preempting: Whether heterogeneous jobs preempt pilots, against what sites are advised.
    """

    mix: str
    nodes: int
    jobs: int
    seconds: float
    load: float
    shared: bool
    stock: bool = False
    slow_polls_s: float = 0
    log: str = ""
    first: int = 0
    headroom: str = ""
    preempting: bool = False

    def name(self) -> str:
        """A name for a folder, which tells the conditions apart that the documentation compares."""
        parts = [self.mix, "shared" if self.shared else "exclusive", f"{self.nodes}-nodes"]
        parts += ["stock"] if self.stock else []
        parts += [f"polls-{self.slow_polls_s:g}s"] if self.slow_polls_s else []
        parts += [f"headroom-{self.headroom.rstrip('%')}"] if self.headroom else []
        parts += ["het-preempt"] if self.preempting else []
        return "-".join(parts)

    def main_jobs(self, seed: int) -> tuple[MainJob, ...]:
        """The jobs of a seed.

        Raises:
            LogError: the log cannot be read, or the jobs cannot be that load.
        """
        log = Path(self.log) if self.log else None
        requests, machine = requests_for(self.jobs, seed, log, self.first)
        return mixed(
            requests,
            machine,
            MIXES[self.mix],
            nodes=self.nodes,
            seconds=self.seconds,
            load=self.load,
            seed=seed,
            shared=self.shared,
        )

    def testbed(self) -> Testbed:
        """A testbed for it."""
        mix = MIXES[self.mix]
        gres = {f"n[1-{self.nodes}]": f"gpu:{GPUS}"} if "gpus" in mix.shares else {}
        return Testbed(
            self.nodes,
            stock=self.stock,
            shared=self.shared,
            mixed=True,
            heterogeneous="heterogeneous" in mix.shares and not self.preempting,
            slurmdbd=mix.slurmdbd,
            gres=gres,
        )


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
    jobs = condition.main_jobs(seed)
    wanted = specs if mode == WITH else ()
    shown = -1
    with (
        condition.testbed() as bed,
        Harvest(
            bed,
            jobs,
            wanted,
            slow_polls_s=condition.slow_polls_s,
            settings={"headroom": condition.headroom} if condition.headroom else {},
            begin_after_s=_phase_s(condition, seed, mode),
        ) as harvest,
    ):
        for scene in harvest.scenes(SEEN_EVERY_S):
            ended = sum(bool(run.state) for run in scene.runs)
            if ended // SHOWN_EVERY != shown:
                shown = ended // SHOWN_EVERY
                tell(f"  {ended} main jobs have ended")
        outcome, logs = harvest.finish(), harvest.logs()
    return _store(folder, _options(condition, seed), outcome, logs)


def _phase_s(condition: Condition, seed: int, mode: str) -> float:
    """Where in Slurm's scheduling interval the load begins, which moves all starts. At random:
    otherwise the two runs without would be alike in it, and the one with would not."""
    rng = random.Random(f"{seed} {mode}")  # noqa: S311  not for secrets
    return rng.uniform(0, STOCK_INTERVAL_S if condition.stock else INTERVAL_S)


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
    """Of the code that runs; "" outside a git repository."""
    command = ["git", "describe", "--always", "--dirty"]
    done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _options(condition: Condition, seed: int) -> dict[str, Any]:
    known = asdict(condition)
    if not condition.headroom:  # as in runs from before there was such an option
        del known["headroom"]
    return {**known, "seed": seed}
