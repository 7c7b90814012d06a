"""The demonstration as it runs: a live picture on a terminal, a line for each change elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from bftrainer.cli.shared.figures import whole
from bftrainer.cli.shared.live.nodes import nodes_text
from bftrainer.cli.shared.live.panels import rescales_table, trainers_table
from bftrainer.cli.shared.terminal import printable, say
from bftrainer.cli.shared.trainers.worker_phases import PhaseTimes
from bftrainer.series.timeline import Timeline, timeline

if TYPE_CHECKING:
    from bftrainer.demo.view import DaemonView, Told

TRAINERS = 8
"""Trainers shown, at most."""


def show(views: Iterable[DaemonView], seconds: float, *, quiet: bool) -> DaemonView:
    """Show each view as it comes; only wait for the last one if `quiet`. Returns the last."""
    console, times = Console(), PhaseTimes()
    with (
        Live(console=console, refresh_per_second=4)
        if console.is_terminal and not quiet
        else nullcontext() as live
    ):
        said, count = "", 0
        for view in views:
            times.update(view.elapsed_s, view.trainers)
            if live is not None:
                live.update(picture(view, seconds, times, console))
            elif not quiet:
                for told in view.told[count:]:
                    say(sentence(told))
                count = len(view.told)
                if (now := state(view)) != said:
                    said = now
                    say(line(view, times))
    return view


def closing(view: DaemonView, summary: Sequence[str], drawn: Path | None) -> None:
    """Print the end of a demonstration: its nodes over time, what was to be seen, and the figures."""
    console = Console()
    console.print()
    console.print(nodes_text(course(view), {t["id"]: t["name"] for t in view.trainers}, console))
    if seen := results(view):
        say("\nYou should have seen:")
        for act, text in seen:
            say(f"  {act}. {text}")
    if view.acts_left:
        say(f"Not played to the end, as the time was over: {', '.join(view.acts_left)}; --seconds gives more")
    say("\n" + "\n".join(summary))
    if drawn is not None:
        say(f"the nodes over time: {drawn}")


def results(view: DaemonView) -> list[tuple[int, str]]:
    """Return the number of each act with all that it had to say after its cause."""
    acts: dict[int, list[str]] = {}
    for told in view.told:
        acts.setdefault(told.act, []).append(told.text)
    return [(act, " ".join(texts[1:])) for act, texts in acts.items() if act and texts[1:]]


def sentence(told: Told) -> str:
    """Return a sentence of an act with its number and title."""
    act = f"act {told.act}, {told.title}" if told.act else told.title
    return f"{told.at_s:5.1f} s  == {act}: {told.text}"


def state(view: DaemonView) -> str:
    """Return what deserves a line when it changes: nodes, and the phases of workers."""
    nodes = [(n["node"], n["state"], n["trainer"], n.get("role")) for n in view.pool["nodes"]]
    return repr((nodes, [(t["id"], t["status"], t["workers"]) for t in view.trainers]))


def line(view: DaemonView, times: PhaseTimes) -> str:
    """Return a view as one line: the nodes with their devices and trainers, then the trainers with their
    workers."""
    nodes = " ".join(
        f"{n['node']}{f'[{own}]' if (own := n['devices']) else ''}={n['trainer'] or n['state']}"
        for n in view.pool["nodes"]
    )
    trainers = []
    for t in view.trainers:
        workers = times.text(t, view.elapsed_s)
        trainers.append(
            f"{t['name']} {t['status']} {whole(t['samples'])}" + (f" ({workers})" if workers else "")
        )
    return f"{view.elapsed_s:5.1f} s  {nodes} | {'; '.join(trainers)}"


def course(view: DaemonView) -> Timeline:
    """Return the nodes from the first look at a demonstration to this one."""
    begin = view.now - max(1.0, view.elapsed_s)
    return timeline(view.events, view.pauses, view.pool["nodes"], begin, view.now)


def picture(view: DaemonView, seconds: float, times: PhaseTimes, console: Console) -> Group:
    """Return a view as a picture: what is played, the nodes, the trainers, and the last rescales."""
    names = {t["id"]: t["name"] for t in view.trainers}
    head = (
        f"bftrainer, {view.elapsed_s:.0f} s of {seconds:.0f} s at most, {view.pool['size']} nodes in the pool"
    )
    told = [
        Text(printable(sentence(own)), "bold" if own is view.told[-1] else "dim") for own in view.told[-3:]
    ]
    devices = [f"{n['node']}: {n['devices']}" for n in view.pool["nodes"] if n["devices"]]
    return Group(
        Text(head, "bold"),
        *told,
        nodes_text(course(view), names, console),
        *([Text(printable(", ".join(devices)), "dim")] if devices else []),
        Text(),
        trainers_table(view.trainers, times, view.elapsed_s, TRAINERS),
        Text(),
        rescales_table(view.pauses, names),
    )
