"""Translates between rows of the tables and the model's dataclasses. Pure."""

from __future__ import annotations

import dataclasses
import json
from math import isfinite
from typing import Any

from pydantic import TypeAdapter, ValidationError

from bftrainer.errors import DamagedError
from bftrainer.messages.commands.running import DAMAGED
from bftrainer.model.actions import Action
from bftrainer.model.events import Event, TrainerSubmitted
from bftrainer.model.problem import Plan
from bftrainer.model.reports import Progress, StoredTrainer, TrainerSummary
from bftrainer.model.trainer import Trainer, TrainerSpec, TrainerStatus
from bftrainer.store.damage import count_of, figures_of, number_of, status_of, text_of

Columns = dict[str, Any]
"""Values for the columns of one row."""

TRAINER = "of_trainer"
"""The parameter of a statement that stands for a trainer's id."""
SPEC, STORED = TypeAdapter(TrainerSpec), TypeAdapter(StoredTrainer)


def of_new_trainer(spec: TrainerSpec, time: float) -> Columns:
    """The row of a trainer that is submitted at `time`; the table gives it its id."""
    return {
        "user": spec.user,
        "name": spec.name,
        "spec": _plain(spec),
        "status": TrainerStatus.WAITING.value,
        "reason": "",
        "submitted_at": time,
        "samples": 0,
        "step": 0,
        "epoch": 0,
        "metrics": {},
        "engine": of_engine(Trainer(id=0, spec=spec, submitted_at=time)),
    }


def of_engine(trainer: Trainer) -> Columns:
    """The column `engine`: what the engine needs of a trainer to go on with it after a restart. Its priority
    may have changed since its spec was stored."""
    plain: Columns = _plain(trainer)
    plain["priority"] = trainer.spec.priority
    for key in ("id", "spec", "submitted_at"):  # they have columns of their own
        del plain[key]
    return plain


def of_event(event: Event, pool_size: int) -> Columns:
    """The row of an event. A submitted trainer's spec is in the trainer's row: only its name is repeated."""
    data = _plain(event)
    if isinstance(event, TrainerSubmitted):
        data["spec"] = event.spec.name
    return {
        "time": event.time,
        "kind": type(event).__name__,
        "trainer": getattr(event, "trainer", None),
        "data": data,
        "pool_size": pool_size,
    }


def of_plan(plan: Plan, event: int) -> Columns:
    """The row of the plan that an event led to."""
    return {
        "event": event,
        "allocator": plan.allocator,
        "status": plan.status.value,
        "proven": plan.proven,
        "objective": plan.objective,
        "bound": plan.bound if plan.bound < float("inf") else None,
        "note": plan.note,
        "fallback": plan.fallback,
        "solve_s": plan.solve_s,
        "allocation": {str(k): sorted(v) for k, v in plan.allocation.items()},
    }


def of_action(action: Action, event: int) -> Columns:
    """The row of an action that an event led to and that is not yet carried out."""
    data = _plain(action)
    return {
        "event": event,
        "kind": type(action).__name__,
        "trainer": data.pop("trainer"),
        "generation": data.pop("generation"),
        "data": data,
    }


def to_trainer(row: Any) -> StoredTrainer:
    """The trainer in a whole row of the table `trainers`.

    Raises:
        DamagedError: the row holds what bftrainer would not have written.
    """
    if not row.engine or not row.spec:
        raise DamagedError(DAMAGED.say(id=row.id, why="what the engine needs of it is gone"))
    own = {"id": row.id, "submitted_at": row.submitted_at}
    names = ("status", "reason", "ended_at", "samples", "step", "epoch", "rate", "metrics", "of")
    try:
        own["spec"] = spec = SPEC.validate_python(row.spec)
        brief = {name: getattr(row, name) for name in names}
        brief |= {"warned": _texts(row.warned), "saved": _saved(row.warned)}
        found = STORED.validate_python({**own, **brief, "engine": {**row.engine, **own}})
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise DamagedError(DAMAGED.say(id=row.id, why=f"{where}: {first['msg']}")) from error
    sane = spec.allows(spec.n_min) and spec.allows(spec.n_max) and 0 < spec.weight < float("inf")
    priority = row.engine.get("priority", spec.priority)  # it may have changed since the spec was stored
    known = isinstance(priority, int | float) and isfinite(priority) and isfinite(spec.priority)
    if not sane or not known:
        raise DamagedError(DAMAGED.say(id=row.id, why="its nodes, weight or priority"))
    spec = dataclasses.replace(spec, priority=float(priority))
    return dataclasses.replace(found, spec=spec, engine=dataclasses.replace(found.engine, spec=spec))


def to_summary(row: Any) -> TrainerSummary:
    """The brief of a trainer, in a row with the columns of `queries.BRIEF`."""
    id_, user, name, status, reason, submitted_at, ended_at, samples, step, epoch, rate, metrics, *rest = row
    of, warned, work = rest
    return TrainerSummary(
        id=id_,
        user=text_of(user),
        name=text_of(name),
        status=status_of(status),
        reason=text_of(reason),
        submitted_at=number_of(submitted_at),
        ended_at=None if ended_at is None else number_of(ended_at),
        samples=count_of(samples) or 0,
        step=count_of(step) or 0,
        epoch=count_of(epoch) or 0,
        rate=None if rate is None else number_of(rate),
        metrics=figures_of(metrics),
        work=count_of(work),
        of=count_of(of),
        warned=_texts(warned),
        saved=_saved(warned),
    )


def of_progress(report: Progress) -> Columns:
    """Return a report's changes in the row of its trainer, whose id is the value of `TRAINER`."""
    names = ("step", "samples", "epoch", "rate", "metrics", "of")
    own = {name: getattr(report, name) for name in names}
    warned = {"last": list(report.warned), "saved": report.saved}
    return own | {"warned": warned, TRAINER: report.trainer}


def of_report(report: Progress) -> Columns:
    """The row of a report."""
    names = ("time", "trainer", "generation", "size", "step", "samples", "rate", "metrics")
    return {name: getattr(report, name) for name in names}


def _texts(column: Any) -> tuple[str, ...]:
    """The texts of the column `warned`; none where it holds something else."""
    found = (column or {}).get("last")
    return tuple(text for text in found if isinstance(text, str)) if isinstance(found, list) else ()


def _saved(column: Any) -> int | None:
    """The step of the last checkpoint, in the column `warned`: one more column would be a new version."""
    return count_of((column or {}).get("saved"))


def _plain(value: Any) -> Any:
    """A dataclass as JSON: sets become sorted lists."""
    return json.loads(json.dumps(dataclasses.asdict(value), default=_jsonable))


def _jsonable(value: object) -> object:
    if isinstance(value, frozenset | set):
        return sorted(value)
    raise TypeError(f"cannot store {type(value).__name__}")
