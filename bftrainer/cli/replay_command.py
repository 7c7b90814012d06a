"""bftrainer replay"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import click

from bftrainer.cli import calibration
from bftrainer.cli.options import Positive, json_option, load_settings, parse_utc, print_json, setting_options

LABELS = {
    "efficiency_u": "efficiency U",
    "linear_efficiency": "linear efficiency E",
    "samples": "samples",
    "node_hours": "node-hours in the pool",
    "equivalent_nodes": "equivalent nodes",
    "events": "events",
    "completed": "trainers completed",
    "rescales": "rescales decided",
    "preemptions": "preemptions",
    "stall_node_hours": "node-hours standing still",
    "init_node_hours": "node-hours initialising",
    "idle_node_hours": "node-hours unused",
    "unproven_decisions": "decisions not proven optimal",
    "decision_ms": "decision time (ms)",
    "wall_s": "wall time (s)",
}


@click.command("replay")
@click.argument("log", type=click.Path(path_type=Path, exists=True))
@click.option(
    "--workload",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Job table (CSV job,Tcup,Tcdw,Jmin,Jmax,Pmax,Tsub,model) or YAML list of trainer specs.",
)
@click.option(
    "--curves",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Scalability curves of a job table's models (CSV model,nodes,images_per_s).",
)
@click.option("--nodes", type=click.IntRange(min=1), help="Take the first N node names.  [default: all]")
@click.option("--from", "begin", metavar="ISO", help="Where to begin, UTC.  [default: the log's first entry]")
@click.option("--hours", type=Positive(), help="How long.  [default: to the log's end]")
@setting_options("allocator", "t_fwd_s", "max_parallel", "objective", "milp_time_limit_s")
@json_option
def command(
    log: Path,
    workload: Path | None,
    curves: Path | None,
    nodes: int | None,
    begin: str | None,
    hours: float | None,
    as_json: bool,
    config: Path | None,
    **overrides: Any,
) -> None:
    """Replay LOG, a CSV of idle intervals (plain, .gz or .xz), with the trainers of a workload.

    Columns of LOG: idle_start,idle_end,node (Unix seconds). The same engine that the daemon runs
    decides; everything between its decisions is simulated.

    LOG may also be a daemon's state directory, or the database in it: then what it recorded is replayed,
    without any other option, and the samples that this predicts are shown beside those of the record.
    """
    from bftrainer.replay import recorded
    from bftrainer.replay.evaluate import evaluate

    if recorded.is_record(log):
        given = {"workload": workload, "curves": curves, "nodes": nodes, "from": begin, "hours": hours}
        calibration.refuse_options(**given, **overrides)
        with _bar(shown=not as_json) as progress:
            record = recorded.load(log)
            span = record.end - record.begin
            comparison = recorded.compare(record, lambda now: progress((now - record.begin) / span))
        calibration.show(comparison, as_json=as_json)
        return
    if log.is_dir():
        raise click.UsageError(f"LOG {log}: a directory, but no daemon's: there is no bftrainer.db in it")
    if workload is None:
        raise click.UsageError("--workload is needed: what is to be trained on LOG's nodes?")
    started = time.perf_counter()
    chosen = load_settings(config, overrides)
    with _bar(shown=not as_json) as progress:
        figures = evaluate(
            log, workload, curves, nodes, parse_utc(begin), hours, chosen.engine, progress=progress
        )
    figures["wall_s"] = time.perf_counter() - started
    if as_json:
        print_json(figures)
    else:
        _table(figures)


class _bar:  # noqa: N801  used like a function
    """A progress bar on a terminal, silence elsewhere."""

    def __init__(self, *, shown: bool) -> None:
        self._shown = shown and sys.stderr.isatty()

    def __enter__(self) -> Any:
        if not self._shown:
            return lambda done: None
        from rich.console import Console
        from rich.progress import Progress

        self._bar = Progress(console=Console(stderr=True), transient=True)
        self._bar.start()
        task = self._bar.add_task("replay", total=1.0)
        return lambda done: self._bar.update(task, completed=done)

    def __exit__(self, *args: object) -> None:
        if self._shown:
            self._bar.stop()


def _table(figures: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, show_header=False)
    for key, label in LABELS.items():
        value = figures[key]
        if isinstance(value, dict):
            shown = ", ".join(f"{name} {ms:.2f}" for name, ms in value.items())
        elif isinstance(value, int):
            shown = f"{value:,}"
        else:
            shown = f"{value:.4f}" if value < 10 else f"{value:,.1f}"
        table.add_row(label, shown)
    Console().print(table)
