"""One line on how a study goes on, from what the daemon tells of it."""

from __future__ import annotations

from datetime import datetime
from typing import Any


def forecast(study: dict[str, Any]) -> str:
    """When a study will be done on the nodes of now, what its deadline needs, and why it was planned again;
    empty if it has ended."""
    if study["ended_at"]:
        return ""
    known = study.get("forecast")
    if known is None:
        return "no forecast yet; it needs a curve in the study's trainer, or a trial that has trained a while"
    at = datetime.fromtimestamp(known["at"]).astimezone().strftime("%H:%M:%S")
    return f"forecast: {known['text']} (planned at {at}: {known['because']})"


def learnt(study: dict[str, Any]) -> str:
    """What was learnt of a study's trials, as keys of its trainer; empty if nothing was."""
    known = study.get("learnt") or {}
    keys = []
    if known.get("curve"):
        points = ", ".join(
            f"[{n:g}, {rate:.0f}]" if rate >= 100 else f"[{n:g}, {rate:.3g}]" for n, rate in known["curve"]
        )
        keys.append(f"curve: [{points}]")
    if known.get("start_s") is not None:
        keys.append(f"a start takes {known['start_s']:.1f} s")
    return f"learnt of its trials: {'; '.join(keys)}" if keys else ""
