"""`ports.Store` on SQLite (WAL)."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from alembic.util.exc import CommandError
from sqlalchemy.exc import DatabaseError, IntegrityError, OperationalError

from bftrainer.errors import BftrainerError
from bftrainer.model.actions import Action, Ended
from bftrainer.model.events import Event, TrainerSubmitted
from bftrainer.model.problem import Plan
from bftrainer.model.reports import Pause, Progress, Row, StoredTrainer
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
from bftrainer.store import tables as t


class StoreError(BftrainerError):
    """The database cannot be read or written; nothing of the transaction was kept."""


class NameTakenError(StoreError):
    """An unfinished trainer of the same user has this name."""


class SqlStore:
    """The store in one SQLite file. Safe to use from several threads; one transaction per method."""

    def __init__(self, path: Path) -> None:
        """Open, create or upgrade the database.

        Raises:
            StoreError: not a database of ours, of a newer version, or not writable.
        """
        self._path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"{path}: {error}") from error
        self._engine = sa.create_engine(
            f"sqlite:///{path}", connect_args={"timeout": 10, "check_same_thread": False}
        )
        sa.event.listen(self._engine, "connect", _pragmas)
        try:
            with self._engine.begin() as connection:
                _upgrade(connection)
        except (DatabaseError, CommandError) as error:
            self._engine.dispose()
            raise StoreError(
                f"{path}: {_cause(error)}; written by a newer bftrainer or not its database: "
                "upgrade bftrainer, or move the file away"
            ) from error

    def close(self) -> None:
        self._engine.dispose()

    # writing

    def submit(self, spec: TrainerSpec, time: float) -> int:
        trainer = Trainer(id=0, spec=spec, submitted_at=time)
        with self._transaction() as c:
            try:
                result = c.execute(
                    t.trainers.insert().values(
                        user=spec.user,
                        name=spec.name,
                        spec=_plain(spec),
                        status=TrainerStatus.WAITING.value,
                        reason="",
                        submitted_at=time,
                        samples=0,
                        step=0,
                        epoch=0,
                        metrics={},
                        engine=_engine_part(trainer),
                    )
                )
            except IntegrityError as error:
                raise NameTakenError(
                    f"an unfinished trainer is called {spec.name!r}; choose another name, or "
                    f"end that one first: bftrainer cancel {spec.name}"
                ) from error
            return int(result.inserted_primary_key[0])  # type: ignore[index]

    def record(
        self,
        event: Event,
        trainers: Sequence[Trainer],
        plan: Plan | None,
        actions: Sequence[Action],
        ended: Ended | None,
        pool: frozenset[str],
    ) -> list[int]:
        with self._transaction() as c:
            data = _plain(event)
            if isinstance(event, TrainerSubmitted):
                data["spec"] = event.spec.name  # the spec stands with the trainer
            result = c.execute(
                t.events.insert().values(
                    time=event.time,
                    kind=type(event).__name__,
                    trainer=getattr(event, "trainer", None),
                    data=data,
                    pool_size=len(pool),
                )
            )
            id_ = int(result.inserted_primary_key[0])  # type: ignore[index]
            if plan is not None:
                c.execute(t.plans.insert().values(event=id_, **_plan_part(plan)))
            for trainer in trainers:
                c.execute(
                    t.trainers.update()
                    .where(t.trainers.c.id == trainer.id)
                    .values(status=trainer.status.value, engine=_engine_part(trainer))
                )
            if ended is not None:
                c.execute(
                    t.trainers.update()
                    .where(t.trainers.c.id == ended.trainer)
                    .values(status=ended.status.value, reason=ended.reason, ended_at=event.time, rate=None)
                )
            return [self._action(c, id_, action) for action in actions]

    def performed(self, actions: Sequence[int], time: float) -> None:
        if actions:
            with self._transaction() as c:
                c.execute(t.actions.update().where(t.actions.c.id.in_(actions)).values(performed_at=time))

    def progress(self, rows: Sequence[Progress]) -> None:
        with self._transaction() as c:
            for row in rows:
                values = {
                    "step": row.step,
                    "samples": row.samples,
                    "epoch": row.epoch,
                    "rate": row.rate,
                    "metrics": dict(row.metrics),
                }
                c.execute(t.trainers.update().where(t.trainers.c.id == row.trainer).values(**values))
                del values["epoch"]
                c.execute(
                    t.reports.insert().values(
                        time=row.time,
                        trainer=row.trainer,
                        generation=row.generation,
                        size=row.size,
                        **values,
                    )
                )

    def pause(self, pause: Pause) -> None:
        with self._transaction() as c:
            c.execute(t.pauses.insert().values(**dataclasses.asdict(pause)))

    def put(self, key: str, value: str) -> None:
        with self._transaction() as c:
            c.execute(t.memory.delete().where(t.memory.c.key == key))
            c.execute(t.memory.insert().values(key=key, value=value))

    # reading

    def trainers(self) -> list[StoredTrainer]:
        with self._transaction() as c:
            return [_trainer(row) for row in c.execute(sa.select(t.trainers).order_by(t.trainers.c.id))]

    def get(self, key: str) -> str | None:
        with self._transaction() as c:
            value = c.execute(sa.select(t.memory.c.value).where(t.memory.c.key == key)).scalar()
            return None if value is None else str(value)

    def rows(
        self, what: str, limit: int | None, trainer: int | None = None, user: str | None = None
    ) -> list[Row]:
        table = {"events": t.events, "pauses": t.pauses, "reports": t.reports}[what]
        query = sa.select(table).order_by(table.c.id.desc()).limit(limit)
        if trainer is not None:
            query = query.where(table.c.trainer == trainer)
        own = None if user is None else sa.select(t.trainers.c.id).where(t.trainers.c.user == user)
        if own is not None:
            query = query.where(sa.or_(table.c.trainer.is_(None), table.c.trainer.in_(own)))
        with self._transaction() as c:
            found = [dict(row._mapping) for row in c.execute(query)][::-1]
            if what == "events":
                self._add_decisions(c, found, None if own is None else set(c.execute(own).scalars()))
        return found

    def _add_decisions(self, c: sa.Connection, found: list[Row], own: Collection[int] | None) -> None:
        """Add to events their plans and actions, as far as they are about `own` trainers (None: all)."""
        if not found:
            return
        span = (found[0]["id"], found[-1]["id"])  # naming them one by one would be too much for SQLite
        plans = {
            row.event: row for row in c.execute(sa.select(t.plans).where(t.plans.c.event.between(*span)))
        }
        actions: dict[int, list[Row]] = {}
        query = sa.select(t.actions).where(t.actions.c.event.between(*span)).order_by(t.actions.c.id)
        for action in c.execute(query):
            if own is None or action.trainer in own:
                actions.setdefault(action.event, []).append(dict(action._mapping))
        for row in found:
            plan = plans.get(row["id"])
            row["plan"] = None if plan is None else dict(plan._mapping)
            if plan is not None and own is not None:
                row["plan"]["allocation"] = {k: v for k, v in plan.allocation.items() if int(k) in own}
            row["actions"] = actions.get(row["id"], [])

    def _action(self, c: sa.Connection, event: int, action: Action) -> int:
        data = _plain(action)
        result = c.execute(
            t.actions.insert().values(
                event=event,
                kind=type(action).__name__,
                trainer=data.pop("trainer"),
                generation=data.pop("generation"),
                data=data,
            )
        )
        return int(result.inserted_primary_key[0])  # type: ignore[index]

    @contextmanager
    def _transaction(self) -> Iterator[sa.Connection]:
        try:
            with self._engine.begin() as connection:
                yield connection
        except (OperationalError, DatabaseError) as error:
            if isinstance(error, IntegrityError):
                raise
            raise StoreError(f"{self._path}: {_cause(error)}") from error


def _pragmas(connection: Any, record: object) -> None:
    # WAL: readers never wait for the writer; NORMAL: a power cut may cost the last transactions, but
    # a killed daemon costs none
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")


def _upgrade(connection: sa.Connection) -> None:
    config = Config()
    config.set_main_option("script_location", str(files("bftrainer.store") / "migrations"))
    config.attributes["connection"] = connection
    known = {s.revision for s in ScriptDirectory.from_config(config).walk_revisions()}
    names = sa.inspect(connection).get_table_names()
    if "alembic_version" in names:
        version = connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar()
        if version not in known:
            raise CommandError(f"its version {version!r} is unknown here")
    elif names:
        raise CommandError(f"it holds other tables ({', '.join(sorted(names)[:3])})")
    command.upgrade(config, "head")


def _cause(error: Exception) -> str:
    return str(getattr(error, "orig", None) or error).splitlines()[0]


# --- between rows and the domain -----------------------------------------------------------------


def _plain(value: Any) -> Any:
    """Dataclasses to JSON: sets become sorted lists."""
    return json.loads(json.dumps(dataclasses.asdict(value), default=_jsonable))


def _jsonable(value: object) -> object:
    if isinstance(value, frozenset | set):
        return sorted(value)
    raise TypeError(f"cannot store {type(value).__name__}")


def _engine_part(trainer: Trainer) -> dict[str, Any]:
    plain: dict[str, Any] = _plain(trainer)
    for key in ("id", "spec", "submitted_at"):
        del plain[key]
    return plain


def _plan_part(plan: Plan) -> dict[str, Any]:
    return {
        "allocator": plan.allocator,
        "status": plan.status.value,
        "proven": plan.proven,
        "objective": plan.objective,
        "bound": plan.bound if plan.bound < float("inf") else None,
        "note": plan.note,
        "solve_s": plan.solve_s,
        "allocation": {str(k): sorted(v) for k, v in plan.allocation.items()},
    }


def _trainer(row: Any) -> StoredTrainer:
    spec = _spec(row.spec)
    part = dict(row.engine)
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
