"""The keys of a profile in YAML, and of a file with stages only; their types and bounds."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from bftrainer.messages.files.tables import WRONG_VALUE
from bftrainer.model.sizes import EVERY_SIZE
from bftrainer.performance import curve
from bftrainer.search.plan.model.profile import (
    Billing,
    ExperimentProfile,
    Family,
    Latency,
    Per,
    Spread,
    SpreadOf,
)

MOST_NODES = 4096
MOST_SECONDS = 1e7

Seconds = Annotated[float, Field(ge=0, le=MOST_SECONDS, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]
Amount = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]


def _points(pairs: list[tuple[int, float]]) -> list[tuple[int, float]]:
    curve.make(pairs)
    return pairs


Curve = Annotated[list[tuple[int, float]], Field(min_length=1, max_length=256), AfterValidator(_points)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=False)


class LatencyKeys(_Model):
    """A latency with a spread: `{mean: 15, std: 3, family: lognormal}`."""

    mean: Seconds
    std: Seconds = 0.0
    family: Family = Family.NORMAL

    @model_validator(mode="after")
    def _spreads(self) -> LatencyKeys:
        if self.family is Family.LOGNORMAL and self.std and not self.mean:
            wanted = "a mean above 0, or no std: a lognormal latency with mean 0 has no spread"
            raise ValueError(WRONG_VALUE.say(name="mean", given=0, wanted=wanted))
        return self


def _mean(given: Any) -> Any:
    """A number alone is a latency without a spread."""
    return given if isinstance(given, dict) else {"mean": given}


LatencyOrSeconds = Annotated[LatencyKeys, BeforeValidator(_mean)]


def _auto(given: Any) -> Any:
    """`auto` is no bound; other texts are refused."""
    if isinstance(given, str) and given != "auto":
        wanted = "a number of trials, or auto"
        raise ValueError(WRONG_VALUE.say(name="the value", given=repr(given[:40]), wanted=wanted))
    return None if given == "auto" else given


class SpreadKeys(_Model):
    """Stragglers, relative to a task's mean."""

    std: Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)]
    family: Family = Family.NORMAL
    of: SpreadOf = SpreadOf.TASK


class BillingKeys(_Model):
    """Prices of nodes and data."""

    per: Per = Per.NODE
    price: Amount = 1.0
    minimum_s: Seconds = 0.0
    data_gb: Amount = 0.0
    data_price: Amount = 0.0
    unit: Annotated[str, Field(max_length=40)] = ""


class ProfileKeys(_Model):
    """A profile."""

    curve: Curve | None = None
    iteration_samples: Annotated[float, Field(gt=0, le=1e15, allow_inf_nan=False)] = 1.0
    node_workers: Count = 1
    workers: Annotated[list[Count], Field(min_length=2, max_length=2)] | None = None
    nodes: Annotated[int, Field(ge=1, le=MOST_NODES)] = 512
    parallelism: Annotated[Count | None, BeforeValidator(_auto)] = None
    spread: SpreadKeys | None = None
    start: LatencyOrSeconds = LatencyKeys(mean=0)
    scale: LatencyOrSeconds = LatencyKeys(mean=0)
    init: LatencyOrSeconds = LatencyKeys(mean=0)
    sync: LatencyOrSeconds = LatencyKeys(mean=0)
    billing: BillingKeys = BillingKeys()

    @model_validator(mode="after")
    def _order(self) -> ProfileKeys:
        if self.workers is not None and self.workers[0] > self.workers[1]:
            raise ValueError(
                WRONG_VALUE.say(name="workers:", given=self.workers, wanted="the least number first")
            )
        return self

    def profile(self, study: ExperimentProfile | None) -> ExperimentProfile:
        """The profile; what it lacks is as in `study`, or has its default."""
        billing = self.billing.model_dump()
        priced = {"price", "data_price"} & self.billing.model_fields_set
        billing["unit"] = self.billing.unit or ("" if priced else "node-hours")
        base = study or ExperimentProfile(curve=(), most=self.nodes * self.node_workers)
        own: dict[str, Any] = {
            name: Latency(**getattr(self, name).model_dump())
            for name in ("start", "scale", "init", "sync")
            if name in self.model_fields_set
        }
        if self.curve is not None:
            own["curve"] = curve.make(self.curve)
        if "parallelism" in self.model_fields_set:
            own["parallelism"] = self.parallelism
        if self.workers is not None:
            own |= {"least": self.workers[0], "most": self.workers[1], "sizes": EVERY_SIZE}
        return replace(
            base,
            iteration_samples=self.iteration_samples,
            node_workers=self.node_workers,
            nodes=self.nodes,
            spread=Spread(**self.spread.model_dump()) if self.spread else Spread(),
            billing=Billing(**billing),
            **own,
        )


class StageKeys(_Model):
    """A number of trials, and of iterations of each."""

    trials: Count
    iterations: Annotated[float, Field(gt=0, le=1e15, allow_inf_nan=False)]


class HalvingKeys(_Model):
    """SHA(trials, least, most, eta)."""

    trials: Count
    least: Annotated[float, Field(gt=0, le=1e15)]
    most: Annotated[float, Field(gt=0, le=1e15)]
    eta: Annotated[int, Field(ge=2, le=1000)] = 2


class HyperbandKeys(_Model):
    """Hyperband(most, eta)."""

    most: Annotated[float, Field(gt=0, le=1e15)]
    least: Annotated[float, Field(gt=0, le=1e15)] = 1.0
    eta: Annotated[int, Field(ge=2, le=1000)] = 3


class StagesFile(_Model):
    """A file with nothing but stages: exactly one of the three ways to give them."""

    name: Annotated[str, Field(max_length=100)] = "search"
    stages: Annotated[list[StageKeys], Field(min_length=1, max_length=64)] | None = None
    halving: HalvingKeys | None = None
    hyperband: HyperbandKeys | None = None

    @model_validator(mode="after")
    def _one(self) -> StagesFile:
        given = [n for n in ("stages", "halving", "hyperband") if getattr(self, n) is not None]
        if len(given) != 1:
            said = " and ".join(given) or "no stages"
            wanted = "one of stages, halving and hyperband"
            raise ValueError(WRONG_VALUE.say(name="the file:", given=said, wanted=wanted))
        return self
