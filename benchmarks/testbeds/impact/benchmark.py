"""The benchmark of what main jobs notice, of any batch system: its options, its runs, what it prints.

Each seed is a load of main jobs and makes a pair: three runs. A run's result and logs lie in
OUT/CONDITION/SEED-MODE; one that is there and was taken with the same options is not taken again, so a
command that was interrupted goes on where it was.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from ClusterShell.RangeSet import RangeSet, RangeSetParseError

from benchmarks.testbeds.impact import curve, picture, report
from benchmarks.testbeds.impact.condition import Condition
from benchmarks.testbeds.impact.differences import AGAIN, WITH, WITHOUT
from benchmarks.testbeds.impact.taking import Taken, stored, take
from bftrainer.errors import BftrainerError

ORDER = (WITHOUT, WITH, AGAIN)
"""In this order, slow changes of the machine are in both differences."""


def say(text: str) -> None:
    """Print at once."""
    print(text, flush=True)


def seeds_of(text: str) -> list[int]:
    """1-3,7 -> 1, 2, 3, 7."""
    try:
        return list(map(int, RangeSet(text)))
    except RangeSetParseError as error:
        raise argparse.ArgumentTypeError(f"{error}; write seeds as 1-5 or 1,3") from None


def options(description: str | None, mixes: Collection[str], out: Path) -> argparse.ArgumentParser:
    """The options that every batch system's benchmark has."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--all", action="store_true", help="every condition that docs/ shows; only --seeds counts"
    )
    first = next(iter(mixes))
    kinds = sorted(set(mixes))
    parser.add_argument("--mix", choices=kinds, default=first, help=f"kinds of main jobs [{first}]")
    parser.add_argument("--seeds", type=seeds_of, default=[1], help="one pair each, as 1-5 [1]")
    parser.add_argument("--jobs", type=int, default=90, help="main jobs, an array is one [90]")
    parser.add_argument("--seconds", type=float, help="within which they are submitted; 2 a job")
    parser.add_argument("--nodes", type=int, default=8, help="of the testbed [8]")
    parser.add_argument("--load", type=float, default=0.35, help="share of node-time that they need [0.35]")
    parser.add_argument("--log", type=Path, help="an SWF log that times and sizes come from")
    parser.add_argument("--first", type=int, default=0, help="jobs of the log to leave out")
    parser.add_argument("--headroom", default="", help="idle nodes left to main jobs: auto, 2, 10%% [auto]")
    parser.add_argument(
        "--headrooms",
        action="store_true",
        help="what headroom saves and costs: of each seed, runs with 0 to 30%% of it beside the pair",
    )
    parser.add_argument("--only", choices=ORDER, help="take these runs only")
    parser.add_argument("--again", action="store_true", help="take runs that are there once more")
    parser.add_argument("--timeline", action="store_true", help="print what happened while each job waited")
    parser.add_argument("--check", action="store_true", help="exit 1 where a goal is missed")
    parser.add_argument("--out", type=Path, default=out)
    parser.add_argument("--picture", type=Path, help="where to draw the chart; OUT/CONDITION/waits.png")
    return parser


def common(args: argparse.Namespace) -> dict[str, Any]:
    """Return the options that every batch system's condition has."""
    return {
        "mix": args.mix,
        "nodes": args.nodes,
        "jobs": args.jobs,
        "seconds": args.seconds or 2.0 * args.jobs,
        "load": args.load,
        "log": str(args.log.resolve()) if args.log else "",
        "first": args.first,
        "headroom": args.headroom,
    }


def pair_of(
    folder: Path, condition: Condition, seed: int, *, again: bool, only: str | None
) -> dict[str, Taken]:
    """The runs of a seed by mode: those that are stored, and those that are taken now."""
    found = {}
    for mode in ORDER:
        place = folder / f"{seed}-{mode}"
        wanted = only in (None, mode)
        known = None if wanted and again else stored(place, condition, seed)
        if known is None and wanted:
            say(f"seed {seed}, {mode}")
            known = take(place, condition, seed, mode, condition.specs(), say)
        if known is not None:
            found[mode] = known
    return found


def measured(condition: Condition, args: argparse.Namespace) -> report.Report | None:
    """Take what is missing of a condition's pairs and compare them; None while no pair is whole."""
    folder = args.out / condition.name()
    pairs = {}
    for seed in args.seeds:
        found = pair_of(folder, condition, seed, again=args.again, only=args.only)
        if len(found) == len(ORDER):
            pairs[seed] = found
            say(report.of_pair(condition, seed, found))
            if args.timeline:
                say(report.of_jobs(condition, seed, found))
    if not pairs:
        return None
    compared = report.of_pairs(condition, pairs)
    (folder / "comparison.md").write_text(f"{compared.text}\n", "utf-8")
    chart = args.picture if args.picture and not args.all else folder / "waits.png"
    picture.draw(report.runs_of(pairs)).savefig(chart, dpi=110)
    say(f"\n{compared.text}\n")
    return compared


def headrooms(condition: Condition, args: argparse.Namespace) -> str:
    """Take the runs with each headroom that are missing; return the curve as a table, and draw it.

    The runs without, and those with the default, are those of the condition's pairs.
    """
    base = replace(condition, headroom="")
    found: dict[str, dict[int, dict[str, Taken]]] = {}
    for seed in args.seeds:
        usual = pair_of(args.out / base.name(), base, seed, again=args.again, only=None)
        for headroom in (curve.DEFAULT, *curve.HEADROOMS):
            own = base if headroom == curve.DEFAULT else replace(base, headroom=headroom)
            runs = usual
            if own != base:
                runs = usual | pair_of(args.out / own.name(), own, seed, again=args.again, only=WITH)
            found.setdefault(headroom, {})[seed] = runs
    points = [curve.point(headroom, pairs) for headroom, pairs in found.items()]
    text = "\n".join(curve.points_table(points))
    folder = args.out / base.name()
    (folder / "headroom.md").write_text(f"{text}\n", "utf-8")
    curve.draw(points).savefig(args.picture or folder / "headroom.png", dpi=110)
    return text


def carry_out(args: argparse.Namespace, condition: Condition, documented: Sequence[Condition]) -> int:
    """Take the pairs, and print what they show; 1 if a goal is to be checked and missed."""
    if args.headrooms:
        say(headrooms(condition, args))
        return 0
    conditions = documented if args.all else (condition,)
    found = [compared for one in conditions if (compared := measured(one, args)) is not None]
    if args.all:
        texts = [*(compared.text for compared in found), headrooms(documented[0], args)]
        (args.out / "all.md").write_text("\n\n".join(texts) + "\n", "utf-8")
    return int(args.check and not all(compared.kept for compared in found))


def _terminated(number: int, frame: object) -> None:
    sys.exit(128 + number)


def program(main: Callable[[], int]) -> NoReturn:
    """Run a benchmark as a program; contexts are left at SIGTERM, so that no testbed stays behind."""
    signal.signal(signal.SIGTERM, _terminated)
    try:
        sys.exit(main())
    except BftrainerError as error:
        raise SystemExit(f"error: {error}") from None
