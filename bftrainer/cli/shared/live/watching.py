"""A daemon as it goes on: a picture on a terminal, in which time passes; a line for each change elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from bftrainer.cli.shared.live.demo_views import line, state
from bftrainer.cli.shared.live.nodes import nodes_text
from bftrainer.cli.shared.live.panels import decisions_table, rescales_table, trainers_table
from bftrainer.cli.shared.terminal import say
from bftrainer.cli.shared.trainers.worker_phases import PhaseTimes
from bftrainer.cli.shared.units import units
from bftrainer.demo.view import DaemonView
from bftrainer.series.timeline import Timeline

FRAMES_PER_S = 1
OTHERS = 19
"""Lines of a terminal that are not for nodes and trainers."""


def show(views: Iterable[DaemonView], course: Callable[[DaemonView], Timeline]) -> None:
    """Show each view as it comes; `course` has its nodes over time, up to now."""
    console, times, said = Console(), PhaseTimes(), ""
    last: DaemonView | None = None

    def frame() -> RenderableType:
        """Draw the last view again: its nodes keep their trainers while nothing changes."""
        return "" if last is None else picture(last, course(last), times, console)

    if console.is_terminal:
        with Live(console=console, refresh_per_second=FRAMES_PER_S, get_renderable=frame, screen=True):
            for view in views:
                times.update(view.elapsed_s, view.trainers)
                last = view
        return
    for view in views:
        times.update(view.elapsed_s, view.trainers)
        if (now := state(view)) != said:
            said = now
            say(line(view, times))


def picture(view: DaemonView, nodes: Timeline, times: PhaseTimes, console: Console) -> Group:
    """Return a view as a picture that a console has room for."""
    names = {t["id"]: t["name"] for t in view.trainers}
    room = max(4, console.height - OTHERS)
    rows = min(len(view.trainers) + 1, max(2, room // 3))
    training = sum(bool(t["members"]) for t in view.trainers)
    waiting = sum(t["status"] == "waiting" for t in view.trainers)
    pool = f"{view.pool['size']} {units(view.pool)} in the pool"
    head = f"{pool}, trainers: {training} with nodes, {waiting} waiting"
    return Group(
        Text(head, "bold"),
        nodes_text(nodes, names, console, room - rows, ends_now=True),
        Text(),
        trainers_table(view.trainers, times, view.elapsed_s, rows),
        Text(),
        rescales_table(view.pauses, names, 3),
        Text(),
        decisions_table(view.events, names, 3),
    )
