"""The trainers of a replay: a job table as the paper published it, or trainer specs.

A job table is a CSV `job,Tcup,Tcdw,Jmin,Jmax,Pmax,Tsub,model`: name, stall of a scale-up and of a
scale-down (s, all members stand still), fewest and most nodes, samples, submission time (UTC) and the
curve's name. Curves come from a CSV `model,nodes,images_per_s`.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from bftrainer.errors import BftrainerError
from bftrainer.files import read_text
from bftrainer.messages.files.places import UNREADABLE
from bftrainer.messages.files.replays import NO_CURVE_OF_MODEL, NO_WORK_OR_CURVE, SPECS_HAVE_CURVES
from bftrainer.messages.files.tables import NO_COLUMN, TOO_MANY, WRONG_VALUE
from bftrainer.model.trainer import ASSUMED_COSTS, Cost, Points, RescaleCosts, Scalability, TrainerSpec
from bftrainer.performance import curve
from bftrainer.spec.located_yaml import SPECS, SpecError
from bftrainer.spec.parse import parse_many
from bftrainer.traces.intervals import DAMAGES, LogError
from bftrainer.traces.packed import lines_of, open_text

MOST_ROWS = 1_000_000
"""A table has no more; a packed one of a few kB may have any number."""
JOB_COLUMNS = ("job", "Tcup", "Tcdw", "Jmin", "Jmax", "Pmax", "Tsub", "model")
CURVE_COLUMNS = ("model", "nodes", "images_per_s")


class WorkloadError(BftrainerError, ValueError):
    """A workload that cannot be read. The message names file, line, value and remedy."""


@dataclass(frozen=True, slots=True)
class Submission:
    """A trainer, when it arrives (Unix seconds), and the model that it trains; empty if that is not known."""

    time: float
    spec: TrainerSpec
    model: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Changes of a scenario to a workload.

    Attributes:
        jobs: Number of trainers to keep, the first; None: all.
        stall_up_s, stall_down_s, init_s: Costs of all trainers (s); None: their own.
        cost_scale: Factor of all costs, applied last.
    """

    jobs: int | None = None
    stall_up_s: float | None = None
    stall_down_s: float | None = None
    init_s: float | None = None
    cost_scale: float = 1.0

    def of(self, costs: RescaleCosts) -> RescaleCosts:
        """The changed costs of a trainer that has `costs`."""

        def scaled(given: float | None, own: float) -> float:
            return self.cost_scale * (own if given is None else given)

        return RescaleCosts(
            up=Cost(
                stall_s=scaled(self.stall_up_s, costs.up.stall_s),
                init_s=scaled(self.init_s, costs.up.init_s),
            ),
            down=Cost(
                stall_s=scaled(self.stall_down_s, costs.down.stall_s),
                init_s=self.cost_scale * costs.down.init_s,
            ),
        )

    def apply(self, workload: Sequence[Submission]) -> list[Submission]:
        """The changed workload; a trainer without costs gets the assumed ones before they are changed."""
        if replace(self, jobs=None) == Changes():
            return list(workload[: self.jobs])
        return [
            replace(s, spec=replace(s.spec, costs=self.of(s.spec.costs or ASSUMED_COSTS)))
            for s in workload[: self.jobs]
        ]


def read(path: Path, curves: Path | None, model: str | None = None) -> list[Submission]:
    """The workload in `path`, by arrival. With a `model`, all trainers of a job table have its curve.

    Raises:
        WorkloadError: unreadable, not a workload, or a curve is missing.
    """
    known = read_curves(curves) if curves is not None else {}
    if path.suffix in (".yaml", ".yml"):
        if model is not None:
            raise WorkloadError(f"{path}: {SPECS_HAVE_CURVES.say(model=model)}")
        return _read_specs(path)
    table = rows(path, JOB_COLUMNS, "a job table")
    found = [
        _submission(path, number, row if model is None else {**row, "model": model}, known)
        for number, row in table
    ]
    return sorted(found, key=lambda submission: submission.time)


def read_curves(path: Path) -> dict[str, Points]:
    """Scalability curves (nodes, samples/s) by model name; the point (0, 0) may be given or not.

    Raises:
        WorkloadError: unreadable, or not such a table.
    """
    points: dict[str, list[tuple[int, float]]] = {}
    for number, row in rows(path, CURVE_COLUMNS, "a table of curves"):
        try:
            n, rate = int(row["nodes"]), float(row["images_per_s"])
        except ValueError:
            given = ", ".join(map(repr, (row["nodes"], row["images_per_s"])))
            raise WorkloadError(wrong(f"{path}:{number}", "nodes, images_per_s", given, "numbers")) from None
        if (n, rate) != (0, 0.0):
            points.setdefault(row["model"], []).append((n, rate))
    try:
        return {model: curve.make(pairs) for model, pairs in points.items()}
    except curve.CurveError as error:
        raise WorkloadError(f"{path}: {error}") from error


def _submission(path: Path, number: int, row: dict[str, str], known: dict[str, Points]) -> Submission:
    """The trainer in a row of a job table. Raises `WorkloadError` for values that cannot be."""
    model = row["model"]
    if model not in known:
        have = ", ".join(sorted(known)) or "none"
        raise WorkloadError(f"{path}:{number}: {NO_CURVE_OF_MODEL.say(model=model, known=have)}")
    try:
        spec = TrainerSpec(
            name=row["job"],
            command=(),
            n_min=int(float(row["Jmin"])),
            n_max=int(float(row["Jmax"])),
            samples=int(float(row["Pmax"])),
            curve=known[model],
            scalability=Scalability.GIVEN,
            costs=RescaleCosts(
                up=Cost(stall_s=_seconds(row["Tcup"])), down=Cost(stall_s=_seconds(row["Tcdw"]))
            ),
        )
        submitted = datetime.fromisoformat(row["Tsub"])
        time = (submitted if submitted.tzinfo else submitted.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError) as error:
        wanted = "whole numbers, costs in seconds from 0, and a time such as 2021-02-11T00:48:48"
        raise WorkloadError(
            wrong(f"{path}:{number}", "this row:", f"its values ({error})", wanted)
        ) from error
    if not 1 <= spec.n_min <= spec.n_max or spec.samples is None or spec.samples < 1:
        given = f"{spec.n_min}, {spec.n_max}, {spec.samples}"
        wanted = "1 <= Jmin <= Jmax and Pmax >= 1"
        raise WorkloadError(wrong(f"{path}:{number}", "Jmin, Jmax, Pmax", given, wanted))
    return Submission(time, spec, model)


def _seconds(text: str) -> float:
    """A cost in seconds. Raises `ValueError` for anything else."""
    value = float(text)
    if not 0 <= value < float("inf"):
        raise ValueError(f"{text!r} is no cost in seconds")
    return value


def _read_specs(path: Path) -> list[Submission]:
    """The trainers of a list of specs: all are there from the begin."""
    try:
        specs = parse_many(read_text(path, SPECS.kb), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise WorkloadError(UNREADABLE.say(path=path, why=error)) from error
    except SpecError as error:
        raise WorkloadError(str(error)) from error
    for spec in specs:
        if spec.samples is None or spec.curve is None:
            raise WorkloadError(f"{path}: {NO_WORK_OR_CURVE.say(name=spec.name)}")
    return [Submission(0.0, replace(spec, scalability=Scalability.GIVEN)) for spec in specs]


def in_nodes(spec: TrainerSpec, gpus_per_node: int) -> TrainerSpec:
    """A trainer that asks for GPUs, as it is where it can only have whole nodes: on the fewest that have as
    many as it asks for, each with all its GPUs, of which it uses no more than it can."""
    if not spec.gpus or spec.curve is None:
        return spec
    n_max = math.ceil(spec.n_max / gpus_per_node)
    across = spec.across or spec.curve
    rates = [
        (n, curve.rate(spec.curve if n == 1 else across, min(n * gpus_per_node, spec.n_max)))
        for n in range(1, n_max + 1)
    ]
    n_min = math.ceil(spec.n_min / gpus_per_node)
    return replace(spec, gpus=False, n_min=n_min, n_max=n_max, curve=curve.make(rates), across=None)


def rows(path: Path, columns: tuple[str, ...], what: str) -> list[tuple[int, dict[str, str]]]:
    """The rows of a CSV with their line numbers. Raises `WorkloadError` if it lacks one of `columns`."""
    try:
        with open_text(path) as file:
            reader = csv.DictReader(lines_of(file))
            header = reader.fieldnames or []
            missing = [column for column in columns if column not in header]
            if missing:
                raise WorkloadError(f"{path}:1: {_lacking(missing, columns, what)}")
            found: list[tuple[int, dict[str, str]]] = []
            for number, row in enumerate(reader, start=2):
                if missing := [column for column in columns if row[column] is None]:
                    raise WorkloadError(f"{path}:{number}: {_lacking(missing, columns, what)}")
                if len(found) == MOST_ROWS:
                    said = TOO_MANY.say(count=MOST_ROWS + 1, what="rows or more", most=MOST_ROWS)
                    raise WorkloadError(f"{path}:{number}: {said}")
                found.append((number, row))
            return found
    except LogError as error:
        raise WorkloadError(f"{path}: {error}") from error
    except DAMAGES as error:
        raise WorkloadError(UNREADABLE.say(path=path, why=error)) from error


def wrong(where: str, name: str, given: object, wanted: str) -> str:
    """Message on a wrong value in a line of a table."""
    return f"{where}: {WRONG_VALUE.say(name=name, given=given, wanted=wanted)}"


def _lacking(missing: Sequence[str], columns: Sequence[str], what: str) -> str:
    return NO_COLUMN.say(missing=", ".join(missing), what=what, columns=", ".join(columns))
