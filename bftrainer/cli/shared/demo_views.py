"""The demonstration as it runs: a live picture on a terminal, lines of text elsewhere."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from bftrainer.cli.shared.figures import whole
from bftrainer.cli.shared.terminal import printable, say
from bftrainer.cli.shared.trainers.table import COLUMNS, TIMES, row
from bftrainer.cli.shared.trainers.worker_phases import PhaseTimes

if TYPE_CHECKING:
    from bftrainer.demo.view import DemoView

LINE_S = 5.0
"""Where there is no terminal, a line comes at least so often."""
LAST_PAUSES = 6


def show(views: Iterable[DemoView], seconds: float, *, quiet: bool) -> None:
    """Show each view as it comes; only wait for the last one if `quiet`.

    Lines come every `LINE_S`, and when workers that do not train yet change their phase.
    """
    console, times = Console(), PhaseTimes()
    if console.is_terminal and not quiet:
        with Live(console=console, refresh_per_second=4) as live:
            for view in views:
                times.update(view.elapsed_s, view.trainers)
                live.update(picture(view, seconds, times))
        return
    last = -LINE_S
    for view in views:
        changed = times.update(view.elapsed_s, view.trainers)
        if not quiet and (changed or view.elapsed_s - last >= LINE_S):
            last = view.elapsed_s
            say(line(view, times))


def line(view: DemoView, times: PhaseTimes) -> str:
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


def picture(view: DemoView, seconds: float, times: PhaseTimes) -> Group:
    """Return a view as tables: the pool, the trainers, and the last rescales."""
    head = f"bftrainer, {view.elapsed_s:.0f} of {seconds:.0f} s, {view.pool['size']} nodes in the pool"
    return Group(Text(head, "bold"), _pool(view), _trainers(view, times), _pauses(view))


def _pool(view: DemoView) -> Table:
    columns = ("node", "state", "devices", "trainer", "")
    pool = Table(*columns, box=None, title="pool", title_justify="left")
    for n in view.pool["nodes"]:
        style = "dim" if n["state"] == "busy" else "green" if n["trainer"] else "yellow"
        state = "taken by the main scheduler" if n["state"] == "busy" else n["state"]
        cells = (n["node"], state, n["devices"], n["trainer"], n["role"])
        pool.add_row(*(Text(printable(cell)) for cell in cells), style=style)
    return pool


def _trainers(view: DemoView, times: PhaseTimes) -> Table:
    shown = [column for column in COLUMNS if column not in TIMES]
    trainers = Table(*shown, box=None, title="trainers", title_justify="left")
    for t in view.trainers:
        cells = dict(zip(COLUMNS, row(t), strict=True)) | {"workers": times.text(t, view.elapsed_s)}
        trainers.add_row(*(Text(printable(cell)) for cell in (cells[column] for column in shown)))
    return trainers


def _pauses(view: DemoView) -> Table:
    names = {t["id"]: t["name"] for t in view.trainers}
    columns = ("change", "trainer", "nodes", "step", "pause")
    pauses = Table(*columns, box=None, title="last rescales", title_justify="left")
    for p in [p for p in view.pauses if p["kind"] != "restart"][-LAST_PAUSES:]:
        pause = f"{p['pause_s'] * 1e3:.0f} ms"
        cells = (p["kind"], names[p["trainer"]], p["size"], whole(p["step"]), pause)
        pauses.add_row(*(Text(printable(cell)) for cell in cells))
    return pauses
