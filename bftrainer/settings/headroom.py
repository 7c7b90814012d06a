"""What the setting `headroom` says: how much idle capacity is left to main jobs."""

from __future__ import annotations

from dataclasses import dataclass

AUTO = "auto"
WORDS = "give auto, a number of nodes such as 2, or a share such as 10%"


@dataclass(frozen=True, slots=True, kw_only=True)
class Headroom:
    """Of each kind of node: `nodes`, or this `share` (0..1) of those that are idle or ours; `auto`: as many
    as main jobs have been seen to need."""

    nodes: int = 0
    share: float = 0.0
    auto: bool = False


def headroom_of(text: str) -> Headroom:
    """What a text such as `auto`, `2`, `2 nodes` or `10%` says.

    Raises:
        ValueError: it is none of these.
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
