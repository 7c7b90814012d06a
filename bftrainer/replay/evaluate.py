"""One call from files to figures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bftrainer.model import EngineSettings
from bftrainer.replay import intervals, run, workload
from bftrainer.replay.intervals import LogError


def evaluate(
    log: Path,
    jobs: Path,
    curves: Path | None,
    nodes: int | None,
    begin: float | None,
    hours: float | None,
    settings: EngineSettings,
    progress: Callable[[float], None] = lambda done: None,
) -> dict[str, object]:
    """Replay `log` from `begin` (Unix seconds) for `hours` and return the figures of `run.metrics`.

    `progress` takes the share done, 0 to 1.

    Raises:
        LogError, WorkloadError: unreadable input, or a span outside of the log.
    """
    fragments = intervals.read(log)
    if not fragments:
        raise LogError(f"{log}: no intervals")
    first = min(fragment.start for fragment in fragments)
    last = max(fragment.end if fragment.end < float("inf") else fragment.start for fragment in fragments)
    start = first if begin is None else begin
    end = last if hours is None else start + hours * 3600
    if not (first <= start < last) or end <= start:
        raise LogError(f"{log}: spans {_iso(first)} to {_iso(last)} UTC; --from {_iso(start)} is outside")
    changes = intervals.changes(fragments, intervals.first_nodes(fragments, nodes), start, end)
    submissions = workload.read(jobs, curves)
    result = run.replay(
        changes,
        submissions,
        settings,
        start,
        end,
        progress=lambda now: progress((now - start) / (end - start)),
    )
    return run.metrics(result, submissions, settings)


def _iso(moment: float) -> str:
    from datetime import UTC, datetime  # noqa: PLC0415  only for the message

    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%S")
