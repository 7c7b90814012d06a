"""A trainer's course for TensorBoard: one file of events in a folder of the trainer's own."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from pathlib import Path

from bftrainer.errors import BftrainerError
from bftrainer.messages.commands.lines import NOT_INSTALLED
from bftrainer.messages.files.places import UNWRITABLE
from bftrainer.series.points import Point, lasting
from bftrainer.traces.whole_file import whole_file

SUFFIX = ".bftrainer"
"""Suffix of the library's files: an export replaces the one before, and leaves others alone."""


def export(points: Sequence[Point], folder: Path) -> int:
    """Write points, without those that were trained again, into a file in `folder`, and remove the file of an
    earlier export from there. Returns how many points it has.

    Raises:
        BftrainerError: the package tensorboard is missing, or the file cannot be written.
    """
    try:
        from tensorboard.compat.proto.event_pb2 import Event  # noqa: PLC0415  an extra
        from tensorboard.compat.proto.summary_pb2 import Summary  # noqa: PLC0415
        from tensorboard.summary.writer.record_writer import RecordWriter  # noqa: PLC0415
    except ImportError as error:
        raise BftrainerError(
            NOT_INSTALLED.say(what="--tensorboard", package="tensorboard", how="pip install tensorboard")
        ) from error
    shown = lasting(points)
    written = folder / f"events.out.tfevents.{time.time_ns()}{SUFFIX}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with whole_file(written) as draft, contextlib.closing(RecordWriter(draft.open("wb"))) as file:
            file.write(Event(wall_time=time.time(), file_version="brain.Event:2").SerializeToString())
            for point in shown:
                values = [Summary.Value(tag=tag, simple_value=value) for tag, value in _values(point)]
                event = Event(wall_time=point.time, step=point.step, summary=Summary(value=values))
                file.write(event.SerializeToString())
        before = list(folder.glob(f"events.out.tfevents.*{SUFFIX}"))
        for path in before:
            if path != written:
                path.unlink(missing_ok=True)
    except OSError as error:
        raise BftrainerError(
            UNWRITABLE.say(path=f"--tensorboard {folder}", why=error.strerror or error)
        ) from error
    return len(shown)


def _values(point: Point) -> list[tuple[str, float]]:
    own = {"bftrainer/nodes": float(point.nodes), "bftrainer/samples": float(point.samples)}
    if point.rate is not None:
        own["bftrainer/samples_per_s"] = point.rate
    return [*point.metrics.items(), *own.items()]
