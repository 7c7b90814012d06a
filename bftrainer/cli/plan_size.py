"""bftrainer plan size"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bftrainer.cli.shared.options import json_option
from bftrainer.cli.shared.tables import print_json, print_table
from bftrainer.cli.shared.terminal import say
from bftrainer.cli.shared.types import Finite, Input
from bftrainer.messages.commands.lines import NOT_WITH
from bftrainer.messages.files.replays import NO_WORK_OR_CURVE
from bftrainer.model.sizes import EVERY_SIZE, AllowedSizes
from bftrainer.model.text import clock

if TYPE_CHECKING:
    from bftrainer.allocate.goodput.sizes import TrainingOnNodes, TrainingPhases, UtilityBounds

MOST_NODES = 16
MOST_SHOWN = 12
"""Changes of the number of nodes that are shown in words; --json has all."""


@click.command("size")
@click.argument("profile", type=Input(dir_okay=True))
@click.option("--gpus", type=click.IntRange(1, 9), help="GPUs of a node.  [default: 4; with a curve 1]")
@click.option(
    "--min-nodes", type=click.IntRange(min=1), help="No fewer nodes.  [default: 1; of a spec its own]"
)
@click.option(
    "--max-nodes", type=click.IntRange(1, 10_000), help="No more nodes.  [default: 16; of a spec its own]"
)
@click.option(
    "--low-utility",
    type=Finite(min=0, max=1),
    default=0.4,
    show_default=True,
    help="With less use of each GPU than this, fewer nodes are better.",
)
@click.option(
    "--high-utility",
    type=Finite(min=0, max=1),
    default=0.6,
    show_default=True,
    help="With more than this, more nodes are.",
)
@click.option("--price", type=Finite(min=0, max=1e9), help="Of a node-hour.  [default: costs are node-hours]")
@json_option
def command(
    profile: Path,
    gpus: int | None,
    min_nodes: int | None,
    max_nodes: int | None,
    low_utility: float,
    high_utility: float,
    price: float | None,
    as_json: bool,
) -> None:
    """Show how many nodes of a dedicated cluster a training is worth: time, cost and utility by nodes.

    PROFILE is a folder with a program's measurements, as `bftrainer replay --profiles` has them; or a trainer
    spec with curve and work, whose samples are all worth the same.

    Utility is the speed-up over one GPU (of a curve: over one node), divided by all GPUs: 1 where none is
    wasted. It falls as nodes are added, and rises as gradients become noisier in the course of a training.
    The last line changes the nodes meanwhile, so that utility stays within the bounds.
    """
    from bftrainer.allocate.goodput.sizes import UtilityBounds

    name, phases, own_min, allowed = (
        _measured(profile, gpus, max_nodes) if profile.is_dir() else _curve(profile, gpus, max_nodes)
    )
    bounds = UtilityBounds(low_utility, high_utility, min_nodes or own_min, len(phases.seconds), allowed)
    every = [phases.fixed(nodes) for nodes in range(1, bounds.most + 1)]
    best = bounds.size([found.utility for found in every])
    fixed = {nodes: every[nodes - 1] for nodes in bounds.sizes}
    scaled = phases.scaled(bounds)
    if as_json:
        print_json(_json(name, phases, bounds, fixed, best, scaled, price))
        return
    say(f"{name}: nodes with {phases.gpus} GPUs each" if phases.gpus > 1 else f"{name}: nodes")
    say()
    cost = "node-hours" if price is None else "cost"
    columns = ("nodes", "goodput (samples/s)", "efficiency", "utility", "time", cost)
    rows = [_row(str(found.course[0]), found, price) for found in fixed.values()]
    if len(scaled.course) > 1:
        rows.append(_row("changing", scaled, price))
    print_table(columns, rows, numbers=columns)
    say()
    _say_best(fixed[best], bounds)
    if len(scaled.course) > 1:
        say(f"changing: {_course(scaled)}")


Asked = tuple[str, "TrainingPhases", int, AllowedSizes]
"""A training's name, its phases, its fewest nodes and the numbers that it runs on."""


def _measured(profile: Path, gpus: int | None, most: int | None) -> Asked:
    """The training of a program whose measurements are in a folder."""
    from bftrainer.replay.dedicated.phases import phases_of
    from bftrainer.replay.dedicated.programs import read_program

    phases = phases_of(read_program(profile), gpus or 4, most or MOST_NODES)
    return profile.resolve().name, phases, 1, EVERY_SIZE


def _curve(profile: Path, gpus: int | None, most: int | None) -> Asked:
    """The training that a trainer spec describes."""
    from bftrainer.allocate.goodput.sizes import phases_of_curve
    from bftrainer.spec.parse import parse, read

    if gpus is not None:
        raise click.UsageError(
            NOT_WITH.say(options="--gpus", other="a trainer spec, whose curve is one of nodes")
        )
    spec = parse(read(profile), str(profile), profile.absolute().parent)
    if spec.curve is None or spec.samples is None or spec.gpus:
        raise click.UsageError(f"{profile}: {NO_WORK_OR_CURVE.say(name=spec.name)}")
    phases = phases_of_curve(spec.curve, spec.samples, most or spec.n_max)
    return spec.name, phases, spec.n_min, spec.sizes


def _cost(found: TrainingOnNodes, price: float | None) -> float:
    """In the unit of the price; in node-hours without one."""
    return found.node_s / 3600 * (1 if price is None else price)


def _row(nodes: str, found: TrainingOnNodes, price: float | None) -> tuple[str, ...]:
    return (
        nodes,
        f"{found.goodput:,.1f}",
        f"{found.efficiency:.3f}",
        f"{found.utility:.3f}",
        clock(found.time_s),
        f"{_cost(found, price):,.2f}",
    )


def _say_best(best: TrainingOnNodes, bounds: UtilityBounds) -> None:
    sizes = f"{bounds.sizes[0]} to {bounds.sizes[-1]}"
    outside = f"; none of {sizes} nodes has one from {bounds.low:g} to {bounds.high:g}"
    off = "" if bounds.has(best.utility) else outside
    say(f"take {best.course[0]}: its utility {best.utility:.3f} is closest to {bounds.middle:g}{off}")


def _course(scaled: TrainingOnNodes) -> str:
    """The nodes of a training in words: from which epoch on it has how many."""
    parts, epoch = [], 1
    for nodes, run in groupby(scaled.course):
        parts.append(f"{nodes} from epoch {epoch} on")
        epoch += len(list(run))
    more = len(parts) - MOST_SHOWN
    return ", ".join(parts[:MOST_SHOWN]) + (f", and {more} further changes" if more > 0 else "")


def _json(
    name: str,
    phases: TrainingPhases,
    bounds: UtilityBounds,
    fixed: dict[int, TrainingOnNodes],
    best: int,
    scaled: TrainingOnNodes,
    price: float | None,
) -> dict[str, Any]:
    def figures(found: TrainingOnNodes) -> dict[str, Any]:
        return {
            "goodput": found.goodput,
            "efficiency": found.efficiency,
            "utility": found.utility,
            "time_s": found.time_s,
            "node_hours": _cost(found, None),
            "cost": _cost(found, price),
        }

    return {
        "name": name,
        "gpus": phases.gpus,
        "utility": [bounds.low, bounds.high],
        "nodes": best,
        "within": bounds.has(fixed[best].utility),
        "sizes": [{"nodes": found.course[0], **figures(found)} for found in fixed.values()],
        "changing": {**figures(scaled), "course": scaled.course},
    }
