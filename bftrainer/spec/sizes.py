"""The numbers of nodes or GPUs that a spec asks for."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, model_validator

from bftrainer.messages.specs import ABOVE_MAX, BESIDE_SIZES, NO_MAX, NO_MULTIPLE, SIZE_TWICE, WORKERS
from bftrainer.model.sizes import AllowedSizes
from bftrainer.model.text import cut

MAX_NODES = 1_000_000
MAX_WORKERS = 1024
"""Processes on one node."""
MAX_SHOWN = 60
"""Characters of a wrong value that are told."""
EXACT = 2.0**53
"""Up to here a float stands for one whole number."""
MAX_POINTS = 256
"""Points of one curve, and sizes of one trainer."""


def whole(value: object) -> object:
    """A whole number that is written as 1e6 as what it is."""
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) <= EXACT else value


Nodes = Annotated[int, Field(ge=1, le=MAX_NODES)]
Whole = Annotated[int, BeforeValidator(whole)]


def _workers(value: object) -> object:
    if value == "auto" or (type(value) is int and 1 <= value <= MAX_WORKERS):
        return value
    raise ValueError(WORKERS.say(given=cut(repr(value), MAX_SHOWN), most=MAX_WORKERS))


Workers = Annotated[int | Literal["auto"], PlainValidator(_workers)]


class Strict(BaseModel):
    """Base of all parts of a spec: no further keys, and values of the very type."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Sizes(Strict):
    """Numbers of nodes: from min to max, perhaps multiples only, or one of a list of sizes; and of processes
    on each."""

    min: Nodes | None = None
    max: Nodes | None = None
    multiple_of: Nodes = 1
    sizes: Annotated[list[Nodes], Field(min_length=1, max_length=MAX_POINTS)] | None = None
    workers: Workers = "auto"

    @model_validator(mode="before")
    @classmethod
    def _number(cls, data: object) -> object:
        """`nodes: 4` stands for `nodes: {max: 4}`."""
        return {"max": data} if type(data) is int else data

    @model_validator(mode="after")
    def _one_form(self) -> Sizes:
        if self.sizes is None:
            return self._checked_range()
        for key in ("min", "max", "multiple_of"):
            if key in self.model_fields_set:
                said = f"{key}: {getattr(self, key)}"
                raise ValueError(BESIDE_SIZES.say(said=said, sizes=self.sizes, key=key))
        for n, count in Counter(self.sizes).items():
            if count > 1:
                raise ValueError(SIZE_TWICE.say(size=n, count=count))
        return self

    def _checked_range(self) -> Sizes:
        if self.max is None:
            raise ValueError(NO_MAX.say())
        if self.least > self.max:
            which = f"multiple_of {self.multiple_of}" if self.min is None else f"min {self.min}"
            key = "multiple_of" if self.min is None else "min"
            raise ValueError(ABOVE_MAX.say(which=which, most=self.max, key=key))
        for key, n in (("min", self.least), ("max", self.max)):
            below = n - n % self.multiple_of
            if n != below:
                near = " or ".join(str(k) for k in (below, below + self.multiple_of) if 0 < k <= MAX_NODES)
                raise ValueError(NO_MULTIPLE.say(key=key, size=n, of=self.multiple_of, near=near))
        return self

    @property
    def least(self) -> int:
        """The fewest nodes."""
        return min(self.sizes) if self.sizes else self.min or self.multiple_of

    @property
    def most(self) -> int:
        """The most nodes."""
        return max(self.sizes) if self.sizes else self.max or self.least

    def allowed(self) -> AllowedSizes:
        """Return which node counts between these are allowed."""
        return AllowedSizes(listed=tuple(sorted(self.sizes or ())), multiple_of=self.multiple_of)
