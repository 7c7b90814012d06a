"""Measures a script with and without partial back-propagation, and with less of other things."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bftrainer.elastic.recorded.directions import RECORD, Directions
from bftrainer.errors import BftrainerError
from bftrainer.messages.commands.lines import NOT_WITH
from bftrainer.messages.trying import NOTHING_PARTIAL, RUN_FAILED, TOO_FEW_STEPS
from bftrainer.model.trainer import TrainerSpec
from bftrainer.rehearsal.conduct import Conducted, Conductor, conducting
from bftrainer.rehearsal.costs.judged import (
    PartCost,
    StepCost,
    WayOutcome,
    compute,
    fewer_steps,
    fewer_workers,
    loss,
    parts,
)
from bftrainer.rehearsal.runs import RunPlan


@dataclass(frozen=True, slots=True)
class PartialMeasured:
    """The result: costs by part, and losses by way of training."""

    name: str
    workers: int
    steps: int
    parts: list[PartCost]
    ways: list[WayOutcome]
    seconds: float


def measure(
    spec: TrainerSpec,
    written: Mapping[str, Any],
    root: Path,
    *,
    workers: int,
    steps: int,
    most_s: float,
    say: Callable[[str], None],
) -> PartialMeasured:
    """Train a script of `launcher: native` for some steps on some workers of this machine, in each way.

    Raises:
        BftrainerError: a run has failed, as where the model has no order of gradients; or it is too short.
    """
    if spec.launcher != "native":
        raise BftrainerError(NOT_WITH.say(options="--partial", other=f"launcher: {spec.launcher}"))
    own = written.get("partial") or True
    with conducting(root, spec, written, nodes=workers, most_s=most_s, say=say) as conductor:
        full, _ = _run(conductor, say, f"full, {workers} workers", workers, steps, own=False)
        part, view = _run(conductor, say, f"partial, {workers} workers", workers, steps, own=own)
        figures = view["metrics"]
        if "partial.bytes" not in figures:
            raise BftrainerError(NOTHING_PARTIAL.say(steps=steps))
        share = compute(part) / compute(full)
        total = full[0].total
        few, short = fewer_workers(workers, share), fewer_steps(steps, share)
        less = f"full, {few} worker{'s' if few > 1 else ''}"
        fewer, _ = _run(conductor, say, less, few, steps, own=False, batch=max(1, total * few // workers))
        half = max(6, steps // 2)
        title = "full, exchanging half as often"
        twice, _ = _run(conductor, say, title, workers, half, own=False, batch=2 * total)
        ways = [
            WayOutcome("full", steps, loss(full, steps), 1.0, 1.0),
            WayOutcome(
                "partial",
                steps,
                loss(part, steps),
                share,
                figures["partial.bytes"] / figures["partial.bytes_full"],
            ),
            WayOutcome("full, fewer steps", short, loss(full, short), short / steps, short / steps),
            WayOutcome(
                less,
                steps,
                loss(fewer, steps),
                compute(fewer) / compute(full),
                (few - 1) / (workers - 1),
            ),
            WayOutcome(
                title, half, loss(twice, half), half * compute(twice) / (steps * compute(full)), half / steps
            ),
        ]
        return PartialMeasured(spec.name, workers, steps, parts(part), ways, conductor.seconds)


def _run(
    conductor: Conductor,
    say: Callable[[str], None],
    title: str,
    workers: int,
    steps: int,
    *,
    own: Any,
    batch: int | None = None,
) -> tuple[list[StepCost], Mapping[str, Any]]:
    say(f"{title} ...")
    plan = RunPlan(
        name=title.replace(", ", "-").replace(" ", "-"),
        title=title,
        nodes=workers,
        directions=Directions(cut=steps, costs=True),
        keys={"partial": own, "work": "until_exit", **({"batch": {"global": batch}} if batch else {})},
    )
    gone = conductor.run([plan])[0]
    if gone.view["status"] != "completed":
        raise BftrainerError(
            RUN_FAILED.say(run=title, status=gone.view["status"], reason=gone.view["reason"])
        )
    costs = StepCost.of(_noted(gone))
    last = max((each.step for each in costs), default=0)
    if last < steps:
        raise BftrainerError(TOO_FEW_STEPS.say(run=title, last=last, steps=steps))
    return costs, gone.view


def _noted(gone: Conducted) -> Iterator[Mapping[str, Any]]:
    for path in sorted((gone.folder / RECORD).glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            yield json.loads(line)
