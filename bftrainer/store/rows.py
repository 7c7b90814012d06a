"""Translates between rows of the tables and the model's dataclasses. Pure."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from bftrainer.model.actions import Action
from bftrainer.model.events import Event, TrainerSubmitted
from bftrainer.model.problem import Plan
from bftrainer.model.reports import StoredTrainer, TrainerSummary
from bftrainer.model.trainer import (
    Cost,
    Observations,
    Observed,
    RescaleCosts,
    Scalability,
    Trainer,
    TrainerSpec,
    TrainerStatus,
)

Columns = dict[str, Any]
"""Values for the columns of one row."""


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
    """The column `engine`: what the engine needs of a trainer to go on with it after a restart."""
    plain: Columns = _plain(trainer)
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
    """The trainer in a whole row of the table `trainers`."""
    spec = _spec(row.spec)
    part = row.engine
    engine = Trainer(
        id=row.id,
        spec=spec,
        submitted_at=row.submitted_at,
        generation=part["generation"],
        published=part["published"],
        nodes=frozenset(part["nodes"]),
        members=tuple(part["members"]),
        started=part["started"],
        warm=frozenset(part["warm"]),
        observed=_observations(part["observed"]),
        failures=part["failures"],
        failed_in=part["failed_in"],
        progress=part["progress"],
    )
    return StoredTrainer(
        id=row.id,
        spec=spec,
        status=TrainerStatus(row.status),
        reason=row.reason,
        submitted_at=row.submitted_at,
        ended_at=row.ended_at,
        samples=row.samples,
        step=row.step,
        epoch=row.epoch,
        rate=row.rate,
        metrics=row.metrics,
        engine=engine,
    )


def to_summary(row: Any) -> TrainerSummary:
    """The brief of a trainer, in a row with the columns of `queries.BRIEF`."""
    id_, user, name, status, reason, submitted_at, ended_at, samples, step, epoch, rate, metrics, work = row
    return TrainerSummary(
        id=id_,
        user=user,
        name=name,
        status=TrainerStatus(status),
        reason=reason,
        submitted_at=submitted_at,
        ended_at=ended_at,
        samples=samples,
        step=step,
        epoch=epoch,
        rate=rate,
        metrics=metrics,
        work=work,
    )


def _plain(value: Any) -> Any:
    """A dataclass as JSON: sets become sorted lists."""
    return json.loads(json.dumps(dataclasses.asdict(value), default=_jsonable))


def _jsonable(value: object) -> object:
    if isinstance(value, frozenset | set):
        return sorted(value)
    raise TypeError(f"cannot store {type(value).__name__}")


def _spec(plain: dict[str, Any]) -> TrainerSpec:
    curve = plain["curve"]
    return TrainerSpec(
        **{
            **plain,
            "command": tuple(plain["command"]),
            "curve": None if curve is None else tuple((n, rate) for n, rate in curve),
            "costs": _costs(plain["costs"]),
            "scalability": Scalability(plain.get("scalability", "auto")),
            "env": tuple((k, v) for k, v in plain["env"]),
            "batch": tuple((k, v) for k, v in plain.get("batch", ())),
            "curves": tuple((c, tuple((n, r) for n, r in own)) for c, own in plain.get("curves", ())),
        }
    )


def _observations(plain: dict[str, Any]) -> Observations:
    return Observations(
        speeds=tuple((name, n, _observed(windows)) for name, n, windows in plain["speeds"]),
        up_stall_s=_observed(plain["up_stall_s"]),
        up_init_s=_observed(plain["up_init_s"]),
        down_stall_s=_observed(plain["down_stall_s"]),
    )


def _observed(plain: dict[str, Any]) -> Observed:
    return Observed(plain["count"], tuple(plain["recent"]))


def _costs(plain: dict[str, Any] | None) -> RescaleCosts | None:
    return None if plain is None else RescaleCosts(up=Cost(**plain["up"]), down=Cost(**plain["down"]))
