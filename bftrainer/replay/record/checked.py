"""Checks a record of a replay before a report is made of it: the file may have been altered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from bftrainer.model.text import shown
from bftrainer.performance.curve import Floats
from bftrainer.replay.record.data import Decisions, Moments, ReportData, Stays, TrainerRow, Window

FORMAT = "bftrainer replay 1"
MOST = 1e18
"""No number is larger: seconds, nodes, samples."""
MOST_SPAN_S = 1e11
"""No replay is longer."""
TABLES: Mapping[str, Any] = {"moments": Moments, "decisions": Decisions, "stays": Stays}

Number = Annotated[float, Field(ge=-MOST, le=MOST)]
Count = Annotated[int, Field(ge=-MOST, le=MOST)]
Name = Annotated[str, Field(max_length=1000)]
STRICT = ConfigDict(allow_inf_nan=False, extra="allow")


class Mean(BaseModel):
    """A figure of those trainers that completed; None if none did."""

    model_config = STRICT
    mean: Number | None


class ReportFigures(BaseModel):
    """The figures that a report shows; a record may have more."""

    model_config = STRICT
    efficiency_u: Number
    linear_efficiency: Number
    samples: Number
    node_hours: Number
    equivalent_nodes: Number
    events: Count
    completed: Count
    turnaround_h: Mean
    runtime_h: Mean
    rescales: Count
    preemptions: Count
    decisions: Count
    decisions_preempted: Count
    rescale_samples: Number
    preemption_samples: Number
    stall_node_hours: Number
    init_node_hours: Number
    idle_node_hours: Number
    unproven_decisions: Count
    runtime_by_model_h: dict[Name, Number | None]


class Parameters(BaseModel):
    """The parameters that a report reads; a record has more."""

    model_config = STRICT
    begin: Number | None = None


class Record(BaseModel):
    """A record's content, its tables aside."""

    model_config = STRICT
    format: Literal["bftrainer replay 1"]
    name: Name
    begin: Number
    end: Number
    parameters: Parameters
    figures: ReportFigures
    nodes: tuple[Name, ...]
    trainers: tuple[TrainerRow, ...]
    windows: Annotated[tuple[Window, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _times_go_on(self) -> Record:
        if not 0 < self.end - self.begin <= MOST_SPAN_S:
            raise ValueError("begin and end: a replay ends after its begin")
        if not all(0 < window.end - window.begin <= MOST_SPAN_S for window in self.windows):
            raise ValueError("windows: one does not end after its begin")
        return self


def checked(plain: object) -> ReportData:
    """The record that plain values of JSON are. Control characters in its texts are escaped.

    Raises:
        ValueError: they are none; the message, of one line, says where.
    """
    if not isinstance(plain, dict) or plain.get("format") != FORMAT:
        raise ValueError("another format")
    texts = {name: _cleaned(value) for name, value in plain.items() if name not in TABLES}
    try:
        found = Record.model_validate(texts)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(shown(str(part))[:40] for part in first["loc"])
        raise ValueError(f"{where}: {first['msg']}"[:200]) from error
    moments, decisions, stays = (_columns(name, plain.get(name)) for name in TABLES)
    span = found.end - found.begin
    _within("stays.node", stays["node"], 0, len(found.nodes) - 1)
    _within("stays.trainer", stays["trainer"], 0, MOST)
    for name in ("begin", "end"):
        _within(f"stays.{name}", stays[name], -1, span + 1)
    return ReportData(
        name=found.name,
        begin=found.begin,
        end=found.end,
        parameters={**texts["parameters"], **found.parameters.model_dump(exclude_unset=True)},
        figures=found.figures.model_dump(),
        nodes=found.nodes,
        moments=Moments(**moments),
        decisions=Decisions(**decisions),
        stays=Stays(**stays),
        trainers=found.trainers,
        windows=found.windows,
    )


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return shown(value)
    if isinstance(value, list):
        return [_cleaned(item) for item in value]
    if isinstance(value, dict):
        return {shown(name): _cleaned(item) for name, item in value.items()}
    return value


def _columns(table: str, plain: object) -> Mapping[str, Floats]:
    """The columns of a table, as long as each other.

    Raises:
        ValueError: not such a table.
    """
    names = TABLES[table]._fields
    if not isinstance(plain, dict) or plain.keys() != set(names):
        raise ValueError(f"{table}: its columns are not {', '.join(names)}")
    found: dict[str, Floats] = {}
    for name in names:
        try:
            found[name] = np.array(plain[name], dtype=float)
        except (TypeError, ValueError, OverflowError):
            raise ValueError(f"{table}.{name}: not numbers") from None
        if found[name].shape != (len(found[names[0]]),) if found[names[0]].ndim else True:
            raise ValueError(f"{table}.{name}: not as long as {names[0]}")
        _within(f"{table}.{name}", found[name], -MOST, MOST)
    return found


def _within(where: str, numbers: Floats, least: float, most: float) -> None:
    if not ((numbers >= least) & (numbers <= most)).all():  # NaN is neither
        raise ValueError(f"{where}: a number is not from {least:,g} to {most:,g}")
