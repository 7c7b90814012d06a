"""Do main jobs notice bftrainer? The same jobs on the same Slurm, without it and with it.

python benchmarks/slurm_impact.py [--jobs 200] [--only with|without] [--out build/slurm-impact]

A run's result lies in OUT, without.json or with.json; one that is there and was taken with the same options
is not taken again, unless --again says so. When both are there they are compared: a table on the output and
in OUT/comparison.json, and a chart. Needs root and Slurm (make slurm); nothing else should run beside it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

sys.path.insert(0, str(Path(__file__).parents[1]))  # slurm/ is not installed

from bftrainer.errors import BftrainerError
from bftrainer.replay.report.drawing import COLOURS
from slurm.testbed import Testbed
from slurm.testbed.harvest import Harvest, Outcome
from slurm.testbed.probe import MainRun, busy, spread, waits, with_room
from slurm.testbed.workload import MainJob, jobs_for

HERE = Path(__file__).parent
SPECS = (HERE / "slurm" / "quick.yaml", HERE / "slurm" / "slow.yaml")
MODES = ("without", "with")
SEEN_EVERY_S = 1.0


def take(bed_options: Mapping[str, Any], jobs: Sequence[MainJob], specs: Sequence[Path]) -> Outcome:
    """One run on a new testbed; a line of progress every ten jobs."""
    with Testbed(**bed_options) as bed, Harvest(bed, jobs, specs) as harvest:
        shown = -1
        for scene in harvest.scenes(SEEN_EVERY_S):
            ended = sum(bool(run.state) for run in scene.runs)
            if ended // 10 != shown:
                shown = ended // 10
                print(f"  {ended} of {len(jobs)} main jobs have ended", flush=True)
        return harvest.finish()


def load(path: Path, options: Mapping[str, Any]) -> dict[str, Any] | None:
    """A result that was taken with these options."""
    try:
        found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return None
    return found if found["options"] == options else None


def save(path: Path, options: Mapping[str, Any], outcome: Outcome) -> dict[str, Any]:
    """Write a result; the file appears when it is complete."""
    found = {"options": dict(options), "outcome": asdict(outcome)}
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(found), "utf-8")
    draft.replace(path)
    loaded: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return loaded


def runs_of(result: Mapping[str, Any]) -> list[MainRun]:
    """Return the main jobs of a stored result."""
    return [MainRun(**run) for run in result["outcome"]["runs"]]


def figures(result: Mapping[str, Any]) -> dict[str, Any]:
    """A run's figures; seconds, and shares of node-time."""
    outcome, runs = result["outcome"], runs_of(result)
    every, room = spread(waits(runs)), spread(waits(with_room(runs, outcome["nodes"])))
    return {
        "jobs": len(runs),
        "states": dict(Counter(run.state for run in runs)),
        "seconds": outcome["end"] - outcome["begin"],
        "wait": asdict(every) if every else None,
        "wait_with_room": asdict(room) if room else None,
        "used_by_main_jobs": outcome["main"],
        "used_in_all": outcome["main"] + outcome["trained"],
        "held_by_pilots": outcome["held"],
        "samples": outcome["samples"],
    }


def compare(results: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Both runs' figures, and what bftrainer changed: of the distributions, and job by job."""
    found = {mode: figures(result) for mode, result in results.items()}
    before, after = ({run.number: run.wait_s for run in runs_of(results[mode])} for mode in MODES)
    pairs = [(before[n], after[n]) for n in sorted(before.keys() & after.keys())]
    later = [b - a for a, b in pairs if a is not None and b is not None]
    change = {
        name: found["with"]["wait"][name] - found["without"]["wait"][name]
        for name in ("median", "mean", "p90", "p99")
    }
    paired = spread(later)
    return {**found, "change": change, "job_by_job": asdict(paired) if paired else None}


def table(comparison: Mapping[str, Any]) -> str:
    """The comparison in Markdown."""
    columns = [comparison[mode] for mode in MODES]

    def row(name: str, *cells: str) -> str:
        """Return a row of a Markdown table."""
        return f"| {' | '.join((name, *cells))} |"

    def waited(which: str, name: str) -> str:
        """Return the row for one figure of the waits."""
        a, b = (column[which][name] for column in columns)
        return row(
            f"wait, {name}" + (" (room)" if which != "wait" else ""),
            f"{a:.2f} s",
            f"{b:.2f} s",
            f"{b - a:+.2f} s",
        )

    shares = [
        row(
            name,
            *(f"{column[key]:.1%}" for column in columns),
            f"{columns[1][key] - columns[0][key]:+.1%}",
        )
        for name, key in (
            ("nodes used by main jobs", "used_by_main_jobs"),
            ("nodes used in all", "used_in_all"),
        )
    ]
    states = (
        ", ".join(f"{n} {state.lower()}" for state, n in column["states"].items()) for column in columns
    )
    return "\n".join(
        [
            row("", "without", "with", "change"),
            "|---|---|---|---|",
            row("main jobs", *states, ""),
            *(waited("wait", name) for name in ("median", "p90", "p99", "most")),
            *(waited("wait_with_room", name) for name in ("median", "p99")),
            *shares,
            row("samples trained", *(f"{column['samples']:,}" for column in columns), ""),
        ]
    )


def draw(results: Mapping[str, Mapping[str, Any]]) -> Figure:
    """The waits of both runs, and whose the nodes were."""
    figure = Figure(figsize=(11, 7), layout="constrained")
    top, *below = figure.subplot_mosaic([["waits", "waits"], ["without", "with"]]).values()
    for mode, colour in zip(MODES, (COLOURS[7], COLOURS[0]), strict=True):
        seconds = np.sort(waits(runs_of(results[mode])))
        top.step(
            np.concatenate(([0], seconds)),
            np.linspace(0, 1, len(seconds) + 1),
            where="post",
            color=colour,
            label=f"{mode} bftrainer",
        )
    top.set(
        xlabel="wait of a main job, seconds (up to 1 s linear, then logarithmic)",
        ylabel="share of main jobs",
        ylim=(0, 1.02),
        xlim=(0, None),
    )
    top.set_xscale("symlog", linthresh=1)
    top.yaxis.set_major_formatter(PercentFormatter(1))
    top.legend(loc="lower right")
    for axes, mode in zip(below, MODES, strict=True):
        _draw_nodes(axes, results[mode]["outcome"], runs_of(results[mode]), mode)
    return figure


def _draw_nodes(axes: Axes, outcome: Mapping[str, Any], runs: Sequence[MainRun], mode: str) -> None:
    begin, end, nodes = outcome["begin"], outcome["end"], outcome["nodes"]
    moments = np.arange(begin, end, 1.0)
    mains = _at(moments, busy(runs, begin, end))
    training = _at(moments, [tuple(step) for step in outcome["training"]])
    axes.fill_between(moments - begin, mains, step="post", color=COLOURS[4], label="main jobs", linewidth=0)
    if mode == "with":
        axes.fill_between(
            moments - begin,
            mains,
            np.minimum(mains + training, nodes),
            step="post",
            color=COLOURS[2],
            label="trainers",
            linewidth=0,
        )
    axes.set(
        title=f"{mode} bftrainer", xlabel="seconds", ylabel="nodes", ylim=(0, nodes), xlim=(0, end - begin)
    )
    axes.legend(loc="upper right")


def _at(moments: Any, steps: Sequence[tuple[float, int]]) -> Any:
    """The value of a step function at each moment; 0 before its first step."""
    times, values = np.array([t for t, _ in steps]), np.array([0, *(value for _, value in steps)])
    return values[np.searchsorted(times, moments, side="right")]


def parse() -> argparse.Namespace:
    """Return the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=200, help="main jobs")
    parser.add_argument("--seconds", type=float, help="within which they are submitted; 1.5 a job")
    parser.add_argument("--nodes", type=int, default=16)
    parser.add_argument("--load", type=float, default=0.35, help="share of node-time that main jobs need")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log", type=Path, help="an SWF log to take the jobs from")
    parser.add_argument("--first", type=int, default=0, help="jobs of the log to leave out")
    parser.add_argument("--stock", action="store_true", help="Slurm's own scheduler parameters")
    parser.add_argument("--only", choices=MODES, help="take this run only")
    parser.add_argument("--again", action="store_true", help="take runs that are there once more")
    parser.add_argument("--out", type=Path, default=Path("build/slurm-impact"))
    parser.add_argument("--picture", type=Path, help="where to draw the chart; OUT/slurm-impact.png")
    return parser.parse_args()


def main() -> None:
    """Run the same main jobs with and without bftrainer, and print the comparison."""
    args = parse()
    seconds = args.seconds or 1.5 * args.jobs
    jobs = jobs_for(
        args.nodes, seconds, args.load, count=args.jobs, seed=args.seed, log=args.log, first=args.first
    )
    options = {name: getattr(args, name) for name in ("jobs", "nodes", "load", "seed", "first", "stock")}
    options |= {"seconds": seconds, "log": args.log and args.log.name}
    args.out.mkdir(parents=True, exist_ok=True)
    results: dict[str, dict[str, Any]] = {}
    for mode in MODES:
        path = args.out / f"{mode}.json"
        wanted = args.only in (None, mode)
        known = None if wanted and args.again else load(path, options)
        if known is None and wanted:
            print(f"{len(jobs)} main jobs {mode} bftrainer", flush=True)
            bed = {"nodes": args.nodes, "stock": args.stock}
            known = save(path, options, take(bed, jobs, SPECS if mode == "with" else ()))
        if known is not None:
            results[mode] = known
    for mode, result in results.items():
        print(mode, json.dumps(figures(result), indent=1))
    if len(results) == len(MODES):
        comparison = compare(results)
        (args.out / "comparison.json").write_text(
            json.dumps({"options": options, **comparison}, indent=1), "utf-8"
        )
        draw(results).savefig(args.picture or args.out / "slurm-impact.png", dpi=110)
        print(f"\n{table(comparison)}\n\njob by job, later by: {comparison['job_by_job']}")


if __name__ == "__main__":
    try:
        main()
    except BftrainerError as error:
        raise SystemExit(f"error: {error}") from None
