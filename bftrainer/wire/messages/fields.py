"""The types and bounds of messages' fields."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainValidator

from bftrainer.model.text import plain
from bftrainer.wire.phases import OF_AGENTS, Phase
from bftrainer.wire.words import MAX_NAME, MAX_TEXT

MOST = 10**15
LONGEST_S = 1e7
MAX_METRICS = 1_000
MAX_WORD = 255
MAX_ENTRY = 32 * 1024
MAX_WORKERS = 200
MAX_DEVICES = 1024
"""Devices of one node, and so its workers of one trainer."""
MAX_TEXTS = 5


def _metrics(value: Any) -> dict[str, float]:
    """Names and numbers as they come. A loss may well be NaN, and a count stays an int."""
    if not isinstance(value, dict) or len(value) > MAX_METRICS:
        raise ValueError(f"no table of at most {MAX_METRICS} metrics")
    for name, number in value.items():
        if type(name) is not str or len(name) > MAX_NAME:
            raise ValueError(f"a metric's name has at most {MAX_NAME} characters")
        plain(name)
        if type(number) is not float and (type(number) is not int or abs(number) > MOST):
            raise ValueError(f"a metric's value is a number of at most {MOST}")
    return value


def _of_agents(phase: Phase) -> Phase:
    if phase not in OF_AGENTS:
        raise ValueError("no phase that agents report")
    return phase


Count = Annotated[int, Field(ge=0, le=MOST)]
Size = Annotated[int, Field(ge=1, le=MOST)]
Number = Annotated[float, Field(ge=-MOST, le=MOST, allow_inf_nan=False)]
Rate = Annotated[float, Field(ge=0, le=MOST, allow_inf_nan=False)]
Seconds = Annotated[float, Field(ge=0, le=LONGEST_S, allow_inf_nan=False)]
Text = Annotated[str, Field(max_length=MAX_TEXT), AfterValidator(plain)]
"""A sentence, such as a reason; like all texts of messages it has no control characters."""
Texts = Annotated[list[Text], Field(max_length=MAX_TEXTS)]
"""A few of them, the latest last."""
Word = Annotated[str, Field(max_length=MAX_WORD), AfterValidator(plain)]
"""A name of a node, a tag or the like."""
Entry = Annotated[str, Field(max_length=MAX_ENTRY), AfterValidator(plain)]
"""A value that members exchange through the daemon."""
Metrics = Annotated[dict[str, float], PlainValidator(_metrics)]
AgentPhase = Annotated[Phase, Field(strict=False), AfterValidator(_of_agents)]


class Schema(BaseModel):
    """Base of all kinds: types are strict (true is no number), unknown fields are dropped."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")
