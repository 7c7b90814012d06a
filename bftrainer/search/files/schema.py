"""The keys of a study file, their types and bounds. `trainer` has a trainer spec, see `spec.schema`."""

from __future__ import annotations

import re
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)

from bftrainer.messages.files.studies import (
    LOG_AND_STEP,
    LOG_FROM_ABOVE_0,
    NO_PARAMETER_ABOVE,
    NOT_BELOW_BUDGET,
    NOT_OF_CHOICE,
    NOT_WHOLE,
    ONE_RANGE,
    RESERVED_NAME,
    SWAPPED,
    TWICE,
)
from bftrainer.messages.files.tables import WRONG_VALUE
from bftrainer.model.text import plain, span_s
from bftrainer.search.cost import MOST_TRIALS
from bftrainer.search.files.space import MOST_APART, Kind
from bftrainer.search.optuna.storage import checked
from bftrainer.spec.sizes import Whole

MOST_PARAMETERS = 100
MOST_POINTS = 1000
MOST_CHOICES = 256
MOST_SAMPLES = 10**15
RESERVED = {
    "trial": "the trial's number",
    "seed": "the trial's seed",
    "params": "all parameters as JSON",
}
"""Names, beside parameters, that braces in a command may have."""
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,39}")
_PARAMETER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")

Bound = Annotated[float, Field(allow_inf_nan=False, ge=-1e300, le=1e300)]


def _wrong(name: str, given: object, wanted: str) -> str:
    return WRONG_VALUE.say(name=name, given=given, wanted=wanted)


def _finite(value: Any) -> Any:
    """Refuse what JSON has no number for."""
    if isinstance(value, float) and not isfinite(value):
        wanted = "a finite number, or quote it if it is meant as text"
        raise ValueError(_wrong("the value", value, wanted))
    return value


Choice = Annotated[str | bool | int | float, AfterValidator(_finite)]
Choices = Annotated[
    list[Choice],
    Field(min_length=1, max_length=MOST_CHOICES),
    BeforeValidator(lambda value: [value] if isinstance(value, str | bool | int | float) else value),
]
Points = Annotated[int, Field(ge=2, le=MOST_CHOICES)]


def _span(value: Any) -> Any:
    """Seconds from a time span such as 90s, 30m, 2h or 1d; a number is seconds already."""
    if not isinstance(value, str):
        return value
    seconds = span_s(value)
    if seconds is None:
        raise ValueError(_wrong("the value", repr(value[:40]), "a time span such as 90s, 30m, 2h or 1d"))
    return seconds


def _auto(value: Any) -> Any:
    return _count_or("auto", value)


def _never(value: Any) -> Any:
    return _count_or("never", value)


def _count_or(word: str, value: Any) -> Any:
    """None for the word; other texts are refused."""
    if isinstance(value, str) and value != word:
        raise ValueError(_wrong("the value", repr(value[:40]), f"a number of trials, or {word}"))
    return None if value == word else value


def _form(value: Any) -> Any:
    """`asha` stands for `{asha: {}}`, and `none` for `{}`."""
    if isinstance(value, str):
        return {} if value == "none" else {value: {}}
    return value


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Range(_Strict):
    """A parameter: `float` or `int` with [lowest, highest], or `choice` with a list."""

    float: Annotated[list[Bound], Field(min_length=2, max_length=2)] | None = None
    int: Annotated[list[Bound], Field(min_length=2, max_length=2)] | None = None
    choice: Annotated[list[Choice], Field(min_length=1, max_length=MOST_CHOICES)] | None = None
    log: bool = False
    step: Annotated[Bound, Field(gt=0)] | None = None
    points: Points | None = None
    when: Annotated[dict[str, Choices], Field(max_length=MOST_PARAMETERS)] = {}

    @property
    def kind(self) -> Kind:
        """Return its kind of values."""
        return next(kind for kind in Kind if getattr(self, kind.value) is not None)

    @model_validator(mode="after")
    def _one_kind(self) -> Range:
        given = [kind.value for kind in Kind if getattr(self, kind.value) is not None]
        if len(given) != 1:
            said = " and ".join(given) or "none of them"
            raise ValueError(ONE_RANGE.say(given=said))
        if self.kind is Kind.CHOICE:
            for key in ("log", "step", "points"):
                if key in self.model_fields_set:
                    raise ValueError(NOT_OF_CHOICE.say(key=key))
            _check_choices(self.choice or [])
            return self
        low, high = self.float or self.int or (0, 0)
        self._check_numbers(low, high)
        return self

    def _check_numbers(self, low: Any, high: Any) -> None:
        if low > high:
            raise ValueError(SWAPPED.say(low=low, high=high))
        if self.kind is Kind.INT and any(n != round(n) for n in (low, high, self.step or 1)):
            raise ValueError(NOT_WHOLE.say())
        if self.kind is Kind.INT and max(-low, high) > MOST_APART:
            wanted = f"whole numbers from {-MOST_APART} to {MOST_APART}, or use float"
            raise ValueError(_wrong("the range", f"[{low:g}, {high:g}]", wanted))
        if self.step is not None and (high - low) / self.step > MOST_APART:
            least = f"at least {(high - low) / MOST_APART:.2g}"
            wanted = f"{least}, as values from {low:g} to {high:g} must be told apart, or leave step out"
            raise ValueError(_wrong("step:", f"{self.step:g}", wanted))
        if self.log and low <= 0:
            raise ValueError(LOG_FROM_ABOVE_0.say(low=low))
        if self.log and self.step is not None:
            raise ValueError(LOG_AND_STEP.say())


def _check_choices(choices: list[Any]) -> None:
    seen = [(type(value).__name__, value) for value in choices]
    for one in choices:
        if seen.count((type(one).__name__, one)) > 1:
            raise ValueError(TWICE.say(one=one))
        if isinstance(one, str):
            plain(one, lines=True)


class _Rungs(_Strict):
    least: Annotated[Whole, Field(ge=1, le=MOST_SAMPLES)]
    eta: Annotated[int, Field(ge=2, le=100)] = 4


class _Median(_Strict):
    warmup: Annotated[Whole, Field(ge=0, le=MOST_SAMPLES)] = 0
    startup: Annotated[int, Field(ge=1, le=MOST_TRIALS)] = 5


class PlateauForm(_Strict):
    """After how many results in a row that are no better, by `change` at least, a study ends."""

    results: Annotated[int, Field(ge=1, le=MOST_TRIALS)]
    change: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0


class StoppingForm(_Strict):
    """One of the ways to stop early; none of them: no trial is stopped."""

    halving: _Rungs | None = None
    hyperband: _Rungs | None = None
    asha: _Rungs | None = None
    median: _Median | None = None

    @model_validator(mode="after")
    def _one(self) -> StoppingForm:
        if len(self.model_fields_set) > 1:
            raise ValueError(_wrong("stopping:", " and ".join(sorted(self.model_fields_set)), "one of them"))
        return self


class StudyForm(_Strict):
    """A study file as users write it; docs/studies.md says what each key means."""

    name: str
    trainer: dict[str, Any]
    space: Annotated[dict[str, Range], Field(min_length=1, max_length=MOST_PARAMETERS)]
    metric: Annotated[str, Field(min_length=1, max_length=100)]
    direction: Literal["minimize", "maximize"] = "minimize"
    trials: Annotated[Whole, Field(ge=1, le=MOST_TRIALS)]
    budget: Annotated[Whole, Field(ge=1, le=MOST_SAMPLES)]
    stopping: Annotated[StoppingForm, BeforeValidator(_form)] = StoppingForm()
    sampler: Literal["tpe", "random", "grid", "cmaes"] = "tpe"
    parallelism: Annotated[Annotated[int, Field(ge=1, le=MOST_TRIALS)] | None, BeforeValidator(_auto)] = None
    retries: Annotated[int, Field(ge=0, le=100)] = 1
    give_up_after: Annotated[Annotated[int, Field(ge=1, le=MOST_TRIALS)] | None, BeforeValidator(_never)] = 3
    deadline: Annotated[
        Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)] | None, BeforeValidator(_span)
    ] = None
    node_hours: Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)] | None = None
    target: Bound | None = None
    plateau: PlateauForm | None = None
    seed: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    points: Annotated[list[dict[str, Choice]], Field(max_length=MOST_POINTS)] = []
    warm_start: Annotated[str, Field(min_length=1, max_length=40)] | None = None
    storage: str | None = None
    folders: Literal["own", "shared"] = "own"
    weight: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)] | None = None
    priority: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)] | None = None

    @field_validator("name")
    @classmethod
    def _usable_in_paths(cls, name: str) -> str:
        if not _NAME.fullmatch(name) or name.isdecimal():
            wanted = (
                "lower-case letters, digits, '.', '_' and '-', at most 40, starting with a letter or digit, "
                "and not digits alone"
            )
            raise ValueError(_wrong("the name", repr(name[:60]), wanted))
        return name

    @field_validator("storage")
    @classmethod
    def _a_url(cls, storage: str | None) -> str | None:
        if storage is not None:
            checked(storage, Path("/"))
        return storage

    @field_validator("metric")
    @classmethod
    def _plain(cls, metric: str) -> str:
        return plain(metric)

    @field_validator("space")
    @classmethod
    def _in_order(cls, space: dict[str, Range]) -> dict[str, Range]:
        before: set[str] = set()
        for name, own in space.items():
            if name in RESERVED:
                raise ValueError(RESERVED_NAME.say(name=name, what=RESERVED[name]))
            if not _PARAMETER.fullmatch(name):
                raise ValueError(_wrong("the parameter's name", repr(name[:70]), "letters, digits and '_'"))
            for other in own.when:
                if other not in before:
                    raise ValueError(NO_PARAMETER_ABOVE.say(name=name, other=other[:70]))
            before.add(name)
        return space

    @model_validator(mode="after")
    def _rungs_within_budget(self) -> StudyForm:
        for kind in ("halving", "hyperband", "asha"):
            own = getattr(self.stopping, kind)
            if own is not None and own.least >= self.budget:
                said = NOT_BELOW_BUDGET.say(key="least", least=own.least, budget=self.budget)
                raise ValueError(f"stopping.{kind}.least: {said}")
        return self
