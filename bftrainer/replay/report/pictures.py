"""The pictures of a report."""

from __future__ import annotations

from collections.abc import Sequence

from bftrainer.replay.record.data import ReportData
from bftrainer.replay.report.comparison import comparison
from bftrainer.replay.report.course import costs, efficiency
from bftrainer.replay.report.drawing import Picture
from bftrainer.replay.report.pool import pool
from bftrainer.replay.report.timeline import timeline
from bftrainer.replay.report.times import times


def of_one(data: ReportData, name: str) -> list[Picture]:
    """What happened in one replay. `name` begins the names of their files."""
    return [pool(data, name), timeline(data, name)]


def of_all(replays: Sequence[ReportData]) -> list[Picture]:
    """The results of several replays side by side."""
    found = [efficiency(replays), costs(replays), times(replays)]
    return [*found, comparison(replays)] if len(replays) > 1 else found
