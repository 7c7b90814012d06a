"""Trainers on a real Slurm whose every part fails at random: all of them finish, and no main job suffers.

python -m tests.cluster.soak --seconds 900 --seed 1 --nodes 8
"""

from __future__ import annotations

import argparse
import json
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.testbeds.runs import MainRun, spread, waits
from benchmarks.testbeds.waiting import until
from benchmarks.testbeds.workload import MainJob
from bftrainer.api.client import DaemonError
from slurm.testbed import Testbed
from slurm.testbed.load import Load
from tests.support.audit import audit
from tests.support.faults import Faults, small_disk
from tests.support.slurm_site import SlurmSite

ACTIVE = 3
"""So many trainers at a time, until the faults end."""
MORE_S = 120.0
LONG_S = 600.0
"""So long everything may take that has no reason not to come."""
STEP_S = 0.05
SAMPLES_S = 16 / STEP_S
"""Of one node, at most."""


def main_jobs(rng: random.Random, seconds: float, nodes: int) -> Iterator[MainJob]:
    """Jobs that take about a third of 8 nodes; the last is submitted before `seconds` are over."""
    at, number = 0.0, 0
    while (at := at + rng.expovariate(1 / 6)) < seconds:
        number += 1
        size = min(nodes, int(rng.lognormvariate(0.4, 0.7)) + 1)
        run = round(rng.uniform(1, 12), 1)
        yield MainJob(number=number, submit_s=at, size=size, run_s=run, limit_s=60)


class Trainers:
    """Submits a few at a time; each is told apart by its name and leaves notes of what it used."""

    def __init__(self, site: SlurmSite, rng: random.Random, most_s: float) -> None:
        self._site, self._rng, self._most_s = site, rng, most_s
        self.wanted: dict[str, int] = {}  # name -> samples

    def refill(self) -> None:
        """Have `ACTIVE` that have not ended, if the daemon answers and stores them."""
        try:
            ended = {t["name"] for t in self._site.get("trainers") if t["ended_at"]}
            while len(self.wanted.keys() - ended) < ACTIVE:
                self._submit(f"t{len(self.wanted) + 1}")
        except DaemonError:
            pass  # it is away, or its disk is full

    def _submit(self, name: str) -> None:
        samples = int(self._rng.uniform(0.4, 1) * self._most_s * SAMPLES_S)
        notes = self._site.root / name
        notes.mkdir(exist_ok=True)
        try:
            self._site.submit(
                name,
                "count.py",
                str(notes),
                str(STEP_S),
                samples=samples,
                n_max=self._rng.randint(2, 4),
                checkpoint={"every_s": 2.0},
            )
        except DaemonError as error:
            if "Choose another name" not in str(error):  # it was stored, and its answer lost
                raise
        self.wanted[name] = samples

    def violations(self) -> Iterator[str]:
        """What is not as it should be once all have ended."""
        found = {t["name"]: t for t in self._site.get("trainers")}
        if missing := self.wanted.keys() - found.keys():
            yield f"forgotten: {sorted(missing)}"
        for name, samples in self.wanted.items():
            t = found.get(name)
            if t is None:
                continue
            if (t["status"], t["samples"]) != ("completed", samples):
                yield f"{name}: {t['status']} ({t['reason']}) with {t['samples']} of {samples} samples"
                continue
            try:
                audit(self._site.root / name, samples)
            except AssertionError as error:
                yield f"{name}: {error}"


def soak(site: SlurmSite, load: Load, faults: Faults, trainers: Trainers, seconds: float) -> int:
    """Let it all happen, and for longer what has not been possible yet; returns the most pilots of ours that
    there were for one node at a time."""
    end, doubled, look = time.monotonic() + seconds, 0, 0.0
    while time.monotonic() < end + (0 if faults.complete else MORE_S):
        site.supervise()
        faults.go_on(missing=time.monotonic() >= end)
        if time.monotonic() >= look:
            look = time.monotonic() + 1.0
            trainers.refill()
            if faults.controller_answers:
                places = Counter(node for _, node in site.jobs("pending,running"))
                doubled = max(doubled, *places.values(), 0)
        time.sleep(0.05)
    faults.end()
    return doubled


def settle(site: SlurmSite, load: Load, trainers: Trainers) -> Iterator[str]:
    """After the faults: wait until all trainers have finished. Yields what does not come true."""

    def waiting_for(what: str, ready: Callable[[], bool]) -> Iterator[str]:
        def now() -> bool:
            site.supervise()
            try:
                return ready()
            except DaemonError:
                return False

        if not until(now, LONG_S, every_s=0.3):
            yield f"not within {LONG_S:.0f} s: {what}"

    names = trainers.wanted.keys()
    yield from waiting_for("the daemon answers", site.alive)
    yield from waiting_for("every main job has ended", load.done)
    yield from waiting_for(
        "every trainer has ended",
        lambda: not names - {t["name"] for t in site.get("trainers") if t["ended_at"]},
    )
    yield from waiting_for("the status is ok", lambda: site.get("status")["state"] == "ok")


def stories(site: SlurmSite) -> Iterator[str]:
    """What is known of each trainer that has not ended."""
    for t in site.get("trainers"):
        if not t["ended_at"]:
            told = re.compile(rf"trainer[= ]{t['id']}\b")
            yield from [str(t), *[line for line in site.log.splitlines() if told.search(line)][-40:], ""]


def leave(site: SlurmSite) -> Iterator[str]:
    """Stop the daemon. Yields what it leaves behind."""
    assert site.daemon is not None
    site.daemon.terminate()
    try:
        if code := site.daemon.wait(90):
            yield f"the daemon ended with exit code {code}"
    except subprocess.TimeoutExpired:
        yield "the daemon does not end on SIGTERM"
    if not until(lambda: not site.jobs(), 30, every_s=0.2):
        yield f"jobs are left: {site.jobs()}"
    if not until(lambda: not site.processes(), 15, every_s=0.2):
        lines = [Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ") for pid in site.processes()]
        yield f"processes are left: {lines}"


def suffering(runs: tuple[MainRun, ...]) -> Iterator[str]:
    """The main jobs that did not come to their end."""
    for run in runs:
        if run.state != "COMPLETED":
            yield f"main job {run.id} on {run.size} nodes: {run.state or 'has not ended'}"


def summary(site: SlurmSite, load: Load, faults: Faults, trainers: Trainers, pauses: list[Any]) -> str:
    """What happened, for people."""
    said: Counter[str] = Counter()
    for event, number in re.findall(r"^\S+ \S+ [A-Z]+ (\w+)(?: count=(\d+))?", site.log, re.MULTILINE):
        said[event] += int(number or 1)
    waited = spread(waits(load.runs()))
    seconds = sorted(p["pause_s"] for p in pauses if p["kind"] != "restart")
    again = sum(p["lost_steps"] for p in pauses)
    kinds = Counter({(p["trainer"], p["generation"]): p["kind"] for p in pauses}.values())
    lines = [
        f"faults: {sum(faults.happened.values())}: " + counted(faults.happened),
        f"main jobs: {counted(Counter(run.state for run in load.runs()))}"
        + (f"; waited {waited.median:.2f} s (median), {waited.most:.2f} s at most" if waited else ""),
        f"trainers: {len(trainers.wanted)}, {sum(trainers.wanted.values()):,} samples, each used once",
        f"rescales: {counted(kinds)}; {len(seconds)} pauses of members"
        + (f", median {seconds[len(seconds) // 2]:.2f} s, {seconds[-1]:.2f} s at most" if seconds else "")
        + f"; {again} steps done again",
        "pilots: " + counted(Counter({k[6:]: n for k, n in said.items() if k.startswith("pilot_")})),
        f"polls failed: {said['poll_failed']}; trainers taken over by {said['taken_over']} new daemons",
    ]
    return "\n".join(lines)


def counted(kinds: Counter[str]) -> str:
    return ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items()))


def run(seconds: float, seed: int, nodes: int, story: Path | None) -> list[str]:
    """One soak; returns what was violated. `story` gets what daemon, agents and workers have said."""
    rng = random.Random(seed)
    with Testbed(nodes) as bed:
        site = SlurmSite(bed, min_free_mb=0)  # its disk is small
        try:
            with small_disk(site) as mounted:
                if not mounted:
                    print("no file system can be mounted here: the disk does not get full")
                return _run_on(site, rng, seconds, small=mounted)
        finally:
            if story is not None:
                story.write_text(site.story())
            site.close()


def _run_on(site: SlurmSite, rng: random.Random, seconds: float, *, small: bool) -> list[str]:
    site.start()
    trainers = Trainers(site, rng, min(40.0, seconds / 3))
    jobs = tuple(main_jobs(random.Random(rng.random()), seconds, len(site.bed.plan.nodes)))
    trainers.refill()
    site.until(site.workers, LONG_S, "a trainer trains")
    faults = Faults(site, random.Random(rng.random()), small_disk=small)
    with Load(site.bed, jobs) as load:
        doubled = soak(site, load, faults, trainers, seconds)
        bad = list(settle(site, load, trainers))
        print(*stories(site), sep="\n", end="")
        pauses = site.get("pauses", limit=10_000)
        bad += [*trainers.violations(), *suffering(load.runs()), *leave(site)]
        bad += [f"no fault of this kind: {kind}" for kind in faults.kinds if not faults.happened[kind]]
        bad += [f"a daemon ended with exit code {code}" for code in site.crashes]
        print(summary(site, load, faults, trainers, pauses))
        print(f"most pilots for one node at a time: {doubled}")
    return bad


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=900.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--story", type=Path, help="where to write the logs of all processes")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # and leave nothing
    if bad := run(options.seconds, options.seed, options.nodes, options.story):
        print(json.dumps(bad, indent=1))
        sys.exit(1)
    print("all trainers finished, no main job failed, nothing is left")


if __name__ == "__main__":
    main()
