"""A demonstration: main jobs come and go, and trainers use the nodes in between."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from benchmarks.testbeds import workload
from benchmarks.testbeds.harvest import Harvest, Machine, Outcome, Scene
from benchmarks.testbeds.runs import spread, waits, with_room
from bftrainer.cli.studies.words import study_line

LINE_S = 5.0
"""Seconds between two lines without a terminal."""


def played(
    machine: Machine,
    seconds: float,
    *,
    load: float,
    jobs: int | None,
    seed: int,
    log: Path | None,
    first: int,
    specs: Sequence[Path],
    study: Path | None = None,
) -> int:
    """Play a demonstration on a testbed of any batch system, and print what it comes to.

    Returns 1 if a main job did not complete or a process of bftrainer is left, else 0.
    """
    count = jobs or workload.enough(machine.nodes, seconds)
    mains = workload.jobs_for(machine.nodes, seconds, load, count=count, seed=seed, log=log, first=first)
    console = Console()
    with Harvest(machine, mains, specs, study=study) as harvest:
        show(harvest, seconds, console)
        outcome = harvest.finish()
    console.print("\n".join(summary_lines(outcome)), soft_wrap=True, highlight=False, markup=False)
    stray = outcome.trainers is not None and bool(outcome.trainers.strays)
    return 1 if stray or any(run.state != "COMPLETED" for run in outcome.runs) else 0


def show(harvest: Harvest, seconds: float, console: Console) -> None:
    """Show the scenes as they come: a live picture on a terminal, lines elsewhere."""
    if console.is_terminal:
        with Live(console=console, refresh_per_second=4) as live:
            for scene in harvest.scenes():
                live.update(picture(scene, harvest.machine.occupants(), seconds, harvest.machine.name))
        return
    last = 0.0
    for scene in harvest.scenes():
        if scene.time - last >= LINE_S:
            last = scene.time
            console.print(line(scene, harvest.machine.occupants()), soft_wrap=True, highlight=False)


def users_of_nodes(scene: Scene, mains: dict[str, str]) -> dict[str, tuple[str, str]]:
    """Return node -> (the main job, trainer or pilot on it, colour)."""
    found = {}
    for row in scene.view.pool["nodes"] if scene.view else []:
        node, trainer = row["node"], row["trainer"]
        if node in mains:
            found[node] = (mains[node], "cyan")
        elif row["role"] == "member":
            found[node] = (trainer, "green")
        elif trainer:
            found[node] = (f"({trainer})", "yellow")
        else:
            found[node] = ("pilot" if row["pilot"] else "-", "dim")
    return dict(sorted(found.items(), key=lambda item: int(item[0][1:])))


def line(scene: Scene, mains: dict[str, str]) -> str:
    """Return a scene as one line."""
    ended = sum(bool(run.state) for run in scene.runs)
    nodes = " ".join(f"{node}={who}" for node, (who, _) in users_of_nodes(scene, mains).items())
    return f"{nodes} | main jobs: {len(scene.runs)} submitted, {ended} ended | samples {scene.samples():,}"


def picture(scene: Scene, mains: dict[str, str], seconds: float, batch_system: str) -> Group:
    """Return a scene as tables: nodes, trainers and the main queue."""
    nodes = Table("node", "", box=None, title="nodes", title_justify="left")
    for node, (who, colour) in users_of_nodes(scene, mains).items():
        nodes.add_row(node, Text(who, colour))
    trainers = Table("trainer", "", "nodes", "samples", "samples/s", box=None)
    for trainer in scene.view.trainers if scene.view else []:
        rate = trainer["rate"]
        trainers.add_row(
            *(trainer["name"], trainer["status"], str(len(trainer["members"]))),
            *(f"{trainer['samples']:,}", f"{rate:,.0f}" if rate else ""),
        )
    queue = Table("main job", "nodes", "waited", "", box=None)
    for run in scene.runs[-8:]:
        wait = "waits" if run.wait_s is None else f"{run.wait_s:.2f} s"
        queue.add_row(f"main-{run.number}", f"{run.size:g}", wait, run.state.lower())
    begun = f"main jobs come for {seconds:.0f} s" if scene.runs else "trainers start on the idle machine"
    return Group(Text(f"bftrainer on {batch_system}: {begun}", "bold"), nodes, trainers, queue)


def summary_lines(outcome: Outcome) -> list[str]:
    """Return the result as lines of text."""
    states = sorted({run.state for run in outcome.runs})
    counts = ", ".join(f"{sum(run.state == s for run in outcome.runs)} {s.lower()}" for s in states)
    lines = [f"main jobs: {len(outcome.runs)} in {outcome.end - outcome.begin:.0f} s: {counts}"]
    at_once = with_room(outcome.runs, outcome.nodes)
    lines += [
        f"their waits: {_words(waits(outcome.runs))}",
        f"  of those that no other main job was in the way of: {_words(waits(at_once))}",
    ]
    lines.append(
        f"nodes used: {outcome.main:.0%} by main jobs, {outcome.main + outcome.trained:.0%} with trainers"
    )
    lines.append(f"samples trained meanwhile: {outcome.samples:,}")
    if outcome.trainers is not None:
        for trainer in outcome.trainers.trainers:
            lines.append(f"  {trainer['name']}: {trainer['status']}, {trainer['samples']:,} samples in all")
        for study in outcome.trainers.studies:
            lines.append(f"  {study_line(study)}")
            failed = (trial for trial in study["table"] if trial["status"] == "failed")
            lines += [f"    trial {trial['number']}: {trial['reason']}" for trial in failed]
        gone = f"no: pids {outcome.trainers.strays}" if outcome.trainers.strays else "yes"
        lines.append(f"daemon, pilots and all workers are gone: {gone}")
    return lines


def _words(seconds: Sequence[float]) -> str:
    found = spread(seconds)
    if found is None:
        return "none"
    return f"median {found.median:.2f} s, p99 {found.p99:.2f} s, most {found.most:.2f} s ({found.count})"
