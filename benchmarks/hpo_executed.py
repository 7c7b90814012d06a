"""Searches that are really executed on this machine, beside what their plan forecasts.

    python benchmarks/hpo_executed.py [--runs 3] [--least-s 15] [--seeds 0 1 2]
    python benchmarks/hpo_executed.py --learnt [--least-s 15]

Four nodes of the `local` scheduler, a daemon of their own. The trainer sleeps after each step, as if
an accelerator computed. First trials are run to learn its profile: samples/s while it trains, how
long a trial takes beside that, and how long a node takes from when it joins until its first worker is ready.
Then a study is run on all nodes, and on nodes of which two come and go, each seed by another log. The
forecast is that of `bftrainer plan` (`ahead`, and `pool` on the nodes as they came and went). With
`--learnt`,
a study that gives neither `curve` nor `rescale` is run once on all nodes, and the daemon's own
forecasts stand beside its end: it learns both from the trials.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # tests/ is not installed

from bftrainer.demo.session import DemoSession
from bftrainer.search.files.parse import parse
from bftrainer.search.plan import of_study
from bftrainer.search.plan.ahead import ahead
from bftrainer.search.plan.model.experiment import joined
from bftrainer.search.plan.model.profile import Latency
from bftrainer.search.plan.model.simulate import Simulator
from bftrainer.search.plan.pools.execution import side_by_side
from bftrainer.search.plan.pools.pool import Pool
from bftrainer.search.study import StudySpec
from bftrainer.traces.intervals import Interval
from bftrainer.traces.logs import Log

NODES = 4
BATCH, PAUSE_S = 32, 0.2
PROFILED = 2
"""Times that trials fill the nodes to learn the profile, with each number of nodes for a trial."""
SCRIPT = f"""\
import time
import torch
from torch.utils.data import TensorDataset
from bftrainer import elastic

torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Linear(16, 2)
data = TensorDataset(torch.randn(20_000, 16))
run = elastic.Run(model, torch.optim.SGD(model.parameters(), lr=0.01), data, batch_size={BATCH})
begin = time.monotonic()
for (x,) in run:
    loss = model(x).square().mean()
    loss.backward()
    time.sleep({PAUSE_S})
    run.step(loss=loss.item())
run.report(loss=0.5, pace=run.position.samples / (time.monotonic() - begin))
"""
ON_S, OFF_S = (30.0, 60.0), (15.0, 40.0)
"""Range of the times that the two nodes which come and go are there and away."""
HEAD = f"{'nodes':26}{'forecast s':>11}{'executed s':>11}{'off by':>8}{'load':>6}"
JOINS = 4
"""Nodes that join, one after the other, to learn how long they take."""
Spans = list[tuple[float, float, str]]
ALWAYS: Spans = [(0.0, 1e6, f"n{k}") for k in range(NODES)]
OPTIONS = ("--scheduler", "local", "--t-fwd", "60", "--poll", "0.2", "--objective", "efficiency")


def study_of(name: str, **more: Any) -> dict[str, Any]:
    """A study whose trials sleep."""
    trainer = {
        "command": ["python", "sleeps.py", "{x}"],
        "nodes": {"min": 1, "max": 2},
        **more.pop("trainer", {}),
    }
    space = {"x": {"float": [0.0, 1.0]}}
    return {"name": name, "trainer": trainer, "space": space, "metric": "loss", "sampler": "random", **more}


class Bench:
    """A daemon on nodes that are idle as `intervals` (start, end, node) say."""

    def __init__(self, folder: Path, intervals: Spans) -> None:
        self._folder = folder
        log = folder / "log.csv"
        rows = [f"{begin},{end},{node}" for begin, end, node in sorted(intervals)]
        log.write_text("\n".join(["idle_start,idle_end,node", "0,0,~anchor", *rows]) + "\n")
        (folder / "sleeps.py").write_text(SCRIPT)
        where = ("--log", str(log), "--nodes", str(NODES), "--from", "1970-01-01T00:00:00")
        self.forecasts: dict[float, dict[str, Any]] = {}
        self.session = DemoSession([*OPTIONS, *where], settings={"submissions_per_minute": 1000})

    def run(self, study: dict[str, Any]) -> dict[str, Any]:
        """Submit a study, and return it when it has ended."""
        path = self._folder / "study.yaml"
        path.write_text(yaml.safe_dump(study))
        for last in self.session.watch_study(self.session.submit_study(path), 3600.0, 0.1):
            if known := last["forecast"]:
                self.forecasts[known["at"]] = known
        if last["status"] != "completed":
            raise SystemExit(f"{study['name']}: {last['status']} {last['reason']}")
        return last

    def metrics(self, trainer: str) -> dict[str, float]:
        """The last figures that a trainer has reported."""
        found: dict[str, float] = self.session.client.call("GET", f"trainers/{trainer}")["metrics"]
        return found

    def pool(self, begin: float, end: float) -> Log:
        """The nodes as they came and went in a span of time."""
        since: dict[str, float] = {}
        found = []
        for event in self.session.client.rows("events", 10_000):
            if event["kind"] != "NodesChanged":
                continue
            for node in event["data"]["left"]:
                found.append(Interval(since.pop(node), event["time"], node))
            since |= dict.fromkeys(event["data"]["joined"], event["time"])
        found += [Interval(at, end, node) for node, at in since.items()]
        cut = [Interval(max(i.start, begin), min(i.end, end), i.node) for i in found if i.end > begin]
        return Log(
            begin=begin,
            end=end,
            intervals=sorted(cut),
            nodes=frozenset(i.node for i in cut),
            machine_nodes=NODES,
            format="daemon",
            lines=len(cut),
            broken=0,
            examples=(),
            notes=(),
        )


def seconds(study: dict[str, Any]) -> float:
    """Return how long a study took."""
    return float(study["ended_at"] - study["submitted_at"])


def profiled(bench: Bench, length_s: float) -> tuple[list[list[float]], float]:
    """The curve, and the seconds of a trial in which it does not train: from its submission to its end.

    As many trials run beside each other as have room: they share this machine's cores, as those of the study.
    """
    curve, starts = [], []
    for nodes in (1, 2):
        samples, beside = round(length_s / PAUSE_S) * BATCH * nodes, NODES // nodes
        trainer = {"nodes": {"min": nodes, "max": nodes}}
        paces = []
        for k in range(PROFILED):
            name = f"profile-{nodes}-{k}"
            study = study_of(name, trials=beside, parallelism=beside, budget=samples, trainer=trainer)
            took = seconds(bench.run(study))
            own = [bench.metrics(f"{name}.{number}.1")["pace"] for number in range(beside)]
            paces += own
            starts.append(took - samples / min(own))
        curve.append([nodes, round(statistics.median(paces), 2)])
    return curve, statistics.median(starts)


def init_s(folder: Path) -> float:
    """Seconds from when a node joins until its first worker is ready: the median of some nodes that follow
    each other, each with an agent of its own."""
    spans = [(20.0 * k, 20.0 * k + 18.0, f"n{k % NODES}") for k in range(JOINS)]
    bench = Bench(folder, spans)
    study = study_of("joins", trials=1, budget=10**6)
    try:
        path = folder / "study.yaml"
        path.write_text(yaml.safe_dump(study))
        for _ in bench.session.watch_study(bench.session.submit_study(path), 20.0 * JOINS, 1.0):
            pass
        joined: dict[str, float] = {}
        found = []
        for event in bench.session.client.rows("events", 10_000):
            if event["kind"] == "NodesChanged":
                joined |= dict.fromkeys(event["data"]["joined"], event["time"])
            elif event["kind"] == "WorkersReady":
                found += [event["time"] - joined.pop(n) for n in event["data"]["nodes"] if n in joined]
    finally:
        bench.session.close()
    print(f"nodes that joined were ready after {', '.join(f'{s:.1f}' for s in found)} s", flush=True)
    return statistics.median(found)


def coming_and_going(seed: int) -> Spans:
    """Two nodes that come and go at random."""
    chance, spans = random.Random(seed), []
    for node in ("n2", "n3"):
        at = 0.0
        while at < 3600.0:
            end = at + chance.uniform(*ON_S)
            spans.append((at, end, node))
            at = end + chance.uniform(*OFF_S)
    return spans


def on_all(folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Run the study on nodes that stay. Returns it, with the profile that was learnt."""
    bench = Bench(folder, ALWAYS)
    try:
        curve, start = profiled(bench, args.least_s)
        print(f"profile: {curve} samples/s by nodes, {start:.2f} s of a trial beside that", flush=True)
        least = round(args.least_s / PAUSE_S) * BATCH
        up = {"up": {"stall_s": 0, "init_s": round(max(0.0, start), 2)}, "down": {"stall_s": 0}}
        study = study_of(
            "search",
            trials=8,
            budget=8 * least,
            stopping={"halving": {"least": least, "eta": 2}},
            trainer={"curve": curve, "rescale": up},
        )
        planned = ahead(parse(yaml.safe_dump(study), "search.yaml", folder), [], NODES, None)
        assert planned is not None and planned.seconds is not None
        print(HEAD, flush=True)
        for _ in range(args.runs):
            told("four", planned.seconds, seconds(bench.run(study)))
    finally:
        bench.session.close()
    return study


def on_learnt(folder: Path, least_s: float) -> None:
    """Run the study of `on_all` without a profile, and print the daemon's forecasts of its end, each with how
    much longer it took from the study's begin than forecast."""
    bench, least = Bench(folder, ALWAYS), round(least_s / PAUSE_S) * BATCH
    stopping = {"halving": {"least": least, "eta": 2}}
    try:
        done = bench.run(study_of("learnt", trials=8, budget=8 * least, stopping=stopping))
    finally:
        bench.session.close()
    print(HEAD, flush=True)
    begun = done["submitted_at"]
    for known in bench.forecasts.values():
        if known["ends_at"] is not None:
            name = f"{known['at'] - begun:.0f} s: {known['because']}"
            told(name, known["ends_at"] - begun, seconds(done))


def on_some(folder: Path, study: dict[str, Any], spans: Spans, name: str, wait_s: float) -> None:
    """Run the study on two nodes that stay and on those that come and go."""
    spec = parse(yaml.safe_dump(study), "search.yaml", folder)
    bench = Bench(folder, [*ALWAYS[:2], *spans])
    try:
        done = bench.run(study)
        log = bench.pool(done["submitted_at"], max(done["ended_at"], time.time()) + 3600.0)
        told(f"{name}, no init", _forecast(spec, log, 0.0), seconds(done))
        told(name, _forecast(spec, log, wait_s), seconds(done))
    finally:
        bench.session.close()


def _forecast(spec: StudySpec, log: Log, wait_s: float) -> float:
    """Return the forecast from the log's begin on; nodes that join are ready after `wait_s`."""
    profile = replace(of_study.profile(spec), nodes=NODES, init=Latency(wait_s))
    experiments = of_study.experiments(spec)
    simulator = Simulator(joined(experiments), profile, samples=1)
    brackets = side_by_side(len(experiment.stages) for experiment in experiments)
    until = log.end - log.begin - 1e-3  # one moment, at the log's begin
    pool = Pool(simulator, log, until, starts=1, brackets=brackets)
    return float(pool.forecast().seconds[0])


def main() -> None:
    """Profile, run, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--least-s", type=float, default=15.0)
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--learnt", action="store_true", help="the daemon's own forecasts")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bft-") as text:
        folder = Path(text)
        if args.learnt:
            on_learnt(folder, args.least_s)
            return
        study = on_all(folder, args)
        wait_s = init_s(folder)
        every = [(80.0 * k, 80.0 * k + 50.0, f"n{node}") for k in range(200) for node in (2, 3)]
        on_some(folder, study, every, "50 of each 80 s", wait_s)
        for seed in args.seeds:
            on_some(folder, study, coming_and_going(seed), f"seed {seed}", wait_s)


def told(nodes: str, forecast: float, executed: float) -> None:
    """Print a row."""
    off, load = executed / forecast - 1, os.getloadavg()[0]
    print(f"{nodes:26}{forecast:11.1f}{executed:11.1f}{off:8.1%}{load:6.1f}", flush=True)


if __name__ == "__main__":
    main()
