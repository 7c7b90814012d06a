"""A report on kept replays: one HTML file that needs no network, and its pictures as PNG files."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

from bftrainer import __version__
from bftrainer.errors import BftrainerError
from bftrainer.messages.files.places import UNWRITABLE
from bftrainer.messages.files.tables import NOTHING_THERE, TOO_MANY
from bftrainer.replay.record import storage
from bftrainer.replay.record.data import ReportData
from bftrainer.replay.report import drawing, summary
from bftrainer.replay.report.comparison import comparison
from bftrainer.replay.report.course import costs, efficiency
from bftrainer.replay.report.drawing import Picture
from bftrainer.replay.report.timeline import pool, timeline
from bftrainer.replay.report.times import times
from bftrainer.traces.whole_file import write_whole


def _of_one(data: ReportData, name: str) -> list[Picture]:
    """Pictures of one replay. `name` begins the names of their files."""
    return [pool(data, name), timeline(data, name)]


def _of_all(replays: Sequence[ReportData]) -> list[Picture]:
    """The results of several replays side by side."""
    found = [efficiency(replays), costs(replays), times(replays)]
    return [*found, comparison(replays)] if len(replays) > 1 else found


class ReportError(BftrainerError, ValueError):
    """A report that cannot be made. The message names what is missing and what to do."""


@dataclass(frozen=True, slots=True)
class ReportPage:
    """The page, and the pictures in it."""

    html: str
    pictures: tuple[Picture, ...]


def read(paths: Sequence[Path], progress: Callable[[float], None] = lambda done: None) -> list[ReportData]:
    """The records in some files, folders and folders of sweeps; within a folder, in order of their names.

    `progress` takes the share done, 0 to 1.

    Raises:
        ReportError: a folder without records, or more records than can be distinguished.
        ReportDataError: a file that is no record.
    """
    files = [(i, file) for i, path in enumerate(paths) for file in _files(path)]
    if len(files) > drawing.MOST:
        what = "runs, which a report could not tell apart"
        raise ReportError(TOO_MANY.say(count=len(files), what=what, most=drawing.MOST))
    found = []
    for i, file in files:
        found.append((i, storage.read(file)))
        progress(len(found) / len(files))
    return [data for _, data in sorted(found, key=lambda both: (both[0], drawing.natural(both[1].name)))]


def make(
    replays: Sequence[ReportData], title: str, progress: Callable[[float], None] = lambda done: None
) -> ReportPage:
    """The report on some replays. The same data make the same page. `progress` takes the share done."""
    named = _distinct(replays)
    single = []
    for i, data in enumerate(named):
        single.append(_of_one(data, f"{i + 1:02}-{_file_name(data.name)}"))
        progress((i + 1) / (len(named) + 1))
    shared = _of_all(named)
    progress(1.0)
    return ReportPage(_page(named, title, single, shared), (*shared, *(one for own in single for one in own)))


def write(report: ReportPage, path: Path, png: Path | None = None) -> None:
    """Write the page, and the pictures into the folder `png`.

    Raises:
        ReportError: a file cannot be written.
    """
    try:
        write_whole(path, report.html)
        if png is not None:
            png.mkdir(exist_ok=True)
            for picture in report.pictures:
                write_whole(png / f"{picture.name}.png", picture.png)
    except OSError as error:
        raise ReportError(UNWRITABLE.say(path=error.filename or path, why=error.strerror)) from error


def _files(path: Path) -> list[Path]:
    """A file, or the records in a folder.

    Raises:
        ReportError: there are none in it.
    """
    if not path.is_dir():
        return [path]
    found = [*path.glob(f"*{storage.SUFFIX}"), *path.glob(f"records/*{storage.SUFFIX}")]
    if not found:
        said = NOTHING_THERE.say(what="records", some="some with bftrainer sweep --record or replay --out")
        raise ReportError(f"{path}: {said}")
    return sorted(found)


def _page(
    replays: Sequence[ReportData], title: str, single: Sequence[Sequence[Picture]], shared: Sequence[Picture]
) -> str:
    """The page in HTML. `single` has the pictures of each replay, `shared` those of all of them."""
    from jinja2 import Environment, PackageLoader  # noqa: PLC0415  takes a while

    environment = Environment(
        loader=PackageLoader("bftrainer.replay.report", "."),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html.j2").render(
        title=title,
        version=__version__,
        runs=[
            {
                "name": data.name,
                "begin": summary.utc(data.begin),
                "end": summary.utc(data.end),
                "nodes": len(data.nodes),
                "pictures": own,
                "parameters": summary.parameters(data),
            }
            for data, own in zip(replays, single, strict=True)
        ],
        shared=shared,
        figures=summary.figures(replays),
        models=summary.runtimes(replays),
        differing=summary.differing(replays),
        data=lambda picture: b64encode(picture.png).decode(),
    )


def _distinct(replays: Sequence[ReportData]) -> list[ReportData]:
    """Replays of the same name get a number that makes no other name of these."""
    names = [data.name for data in replays]
    taken = set(names)
    found = []
    for data in replays:
        name = data.name
        if names.count(name) > 1:
            name = next(new for i in count(1) if (new := f"{data.name} ({i})") not in taken)
            taken.add(name)
        found.append(replace(data, name=name))
    return found


def _file_name(name: str) -> str:
    """A name without characters that are awkward in a file name."""
    return re.sub(r"[^A-Za-z0-9.=_-]+", "-", name).strip("-.")[:60]
