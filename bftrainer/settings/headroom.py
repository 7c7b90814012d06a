"""The settings `headroom` and `promise`: how much idle capacity is left to main jobs, and what they may
notice of us.
"""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

from bftrainer.settings.setting import Seconds

AUTO = "auto"
NONE = "none"
WORDS = "give auto, a number of nodes such as 2, or a share such as 10%"


@dataclass(frozen=True, slots=True, kw_only=True)
class Headroom:
    """Idle nodes left of each kind: `nodes`, or this `share` (0..1) of those that are idle or ours; `auto`:
    as many as main jobs have been seen to need."""

    nodes: int = 0
    share: float = 0.0
    auto: bool = False


def headroom_of(text: str) -> Headroom:
    """Parse a text such as `auto`, `2`, `2 nodes` or `10%`.

    Raises:
        ValueError: the text has another form.
    """
    word = text.strip()
    if word == AUTO:
        return Headroom(auto=True)
    count = word.removesuffix("nodes").removesuffix("node").strip()
    if count.isascii() and count.isdecimal() and len(count) < 7:
        return Headroom(nodes=int(count))
    try:
        share = float(word.removesuffix("%")) / (100.0 if word.endswith("%") else 1.0)
    except ValueError:
        raise ValueError(WORDS) from None
    if not 0.0 <= share <= 1.0 or (share == 1.0 and not word.endswith("%")):
        raise ValueError(f"a share is between 0% and 100%; {WORDS}")
    return Headroom(share=share)


def as_text(value: object) -> object:
    """The text of what a file gives: YAML reads `2` and `0.1` as numbers."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


class Promise(BaseModel):
    """Seconds by which the median and the 99th percentile of main jobs' waits may exceed those of jobs with
    none of our nodes in their way."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    median_s: Seconds = 0.2
    p99_s: Seconds = 1.0

    def __str__(self) -> str:
        return f"median_s={self.median_s:g},p99_s={self.p99_s:g}"


def promise_of(value: object) -> object:
    """Parse a text such as `median_s=0.2,p99_s=1` into a mapping; return anything else as it is.

    Raises:
        ValueError: a text that says something else.
    """
    if not isinstance(value, str) or value == NONE:
        return value
    found = dict[str, str]()
    for part in value.split(","):
        name, equals, number = part.partition("=")
        if not equals or name.strip() in found:
            raise ValueError("give median_s and p99_s, such as median_s=0.2,p99_s=1")
        found[name.strip()] = number.strip()
    return found
