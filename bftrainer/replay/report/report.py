"""One HTML file about recorded replays that opens without a network, and its pictures as PNG files."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

from bftrainer import __version__
from bftrainer.errors import BftrainerError
from bftrainer.replay.record import storage
from bftrainer.replay.record.data import ReportData
from bftrainer.replay.report import pictures
from bftrainer.replay.report.pictures import Picture
from bftrainer.replay.scenario import in_words

FIGURES: Sequence[tuple[str, Callable[[Mapping[str, Any]], str], str]] = (
    ("efficiency U", lambda f: f"{f['efficiency_u']:.1%}", "of what as many dedicated nodes would process"),
    (
        "linear efficiency E",
        lambda f: f"{f['linear_efficiency']:.1%}",
        "of what single nodes without any overhead would process",
    ),
    ("samples", lambda f: f"{f['samples']:,.0f}", "processed by all trainers"),
    ("node-hours", lambda f: f"{f['node_hours']:,.1f}", "in the pool"),
    ("equivalent nodes", lambda f: f"{f['equivalent_nodes']:,.1f}", "the pool's mean size"),
    ("events", lambda f: f"{f['events']:,}", "changes of the pool or of the queue"),
    ("trainers completed", lambda f: f"{f['completed']:,}", ""),
    (
        "mean turnaround",
        lambda f: _hours(f["turnaround_h"]["mean"]),
        "from submission to end, of those completed",
    ),
    ("mean runtime", lambda f: _hours(f["runtime_h"]["mean"]), "from first node to end, of those completed"),
    ("rescales", lambda f: f"{f['rescales']:,}", "decided"),
    ("preemptions", lambda f: f"{f['preemptions']:,}", "of a trainer, by nodes taken away"),
    (
        "preempted decisions",
        lambda f: _share(f["decisions_preempted"], f["decisions"]),
        "followed by a preemption within the forward-looking time",
    ),
    (
        "lost by rescaling",
        lambda f: f"{f['rescale_samples']:,.0f}",
        "samples that trainers would have processed while they stood still",
    ),
    (
        "lost by preemption",
        lambda f: f"{f['preemption_samples']:,.0f}",
        "samples that trainers would have processed while they stood still",
    ),
    ("standing still", lambda f: _share(f["stall_node_hours"], f["node_hours"]), "of node-time"),
    ("initialising", lambda f: _share(f["init_node_hours"], f["node_hours"]), "of node-time"),
    ("unused", lambda f: _share(f["idle_node_hours"], f["node_hours"]), "of node-time"),
    ("decisions not proven", lambda f: f"{f['unproven_decisions']:,}", "to be the best possible"),
)


class ReportError(BftrainerError, ValueError):
    """A report that cannot be made. The message names what is missing and what to do."""


@dataclass(frozen=True, slots=True)
class Report:
    """The page, and the pictures in it."""

    html: str
    pictures: tuple[Picture, ...]


def read(paths: Sequence[Path], progress: Callable[[float], None] = lambda done: None) -> list[ReportData]:
    """The records that are meant: files, or all in a folder or a sweep's folder, by their names.

    Raises:
        ReportError: a folder without records, or more than can be told apart.
        ReportDataError: a file that is no record.
    """
    files = [(i, file) for i, path in enumerate(paths) for file in _files(path)]
    if len(files) > pictures.MOST:
        raise ReportError(
            f"{len(files)} runs: at most {pictures.MOST} can be told apart in one report; name fewer"
        )
    found = []
    for i, file in files:
        found.append((i, storage.read(file)))
        progress(len(found) / len(files))
    return [run for _, run in sorted(found, key=lambda both: (both[0], pictures.natural(both[1].name)))]


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = [*path.glob(f"*{storage.SUFFIX}"), *path.glob(f"records/*{storage.SUFFIX}")]
    if not found:
        raise ReportError(
            f"{path}: no records in it; keep them with bftrainer sweep --record or replay --out"
        )
    return sorted(found)


def make(
    records: Sequence[ReportData], title: str, progress: Callable[[float], None] = lambda done: None
) -> Report:
    """The report on some replays. The same records make the same page."""
    from jinja2 import Environment, PackageLoader  # noqa: PLC0415  takes a while

    named = _distinct(records)
    single = []
    for i, run in enumerate(named):
        single.append(pictures.of_one(run, f"{i + 1:02}-{_fit(run.name)}"))
        progress((i + 1) / (len(named) + 1))
    shared = pictures.of_all(named)
    progress(1.0)
    environment = Environment(
        loader=PackageLoader("bftrainer.replay.report", "."),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    html = environment.get_template("report.html.j2").render(
        title=title,
        version=__version__,
        runs=[
            {
                "name": run.name,
                "begin": _iso(run.begin),
                "end": _iso(run.end),
                "nodes": len(run.nodes),
                "pictures": own,
                "parameters": _parameters(run),
            }
            for run, own in zip(named, single, strict=True)
        ],
        shared=shared,
        figures=[(label, [show(run.figures) for run in named], what) for label, show, what in FIGURES],
        models=_models(named),
        differing=_differing(named),
        data=lambda picture: b64encode(picture.png).decode(),
    )
    return Report(html, (*shared, *(picture for own in single for picture in own)))


def write(report: Report, path: Path, png: Path | None = None) -> None:
    """Write the page, and the pictures into the folder `png`.

    Raises:
        ReportError: a file cannot be written.
    """
    try:
        path.write_text(report.html, encoding="utf-8")
        if png is not None:
            png.mkdir(exist_ok=True)
            for picture in report.pictures:
                (png / f"{picture.name}.png").write_bytes(picture.png)
    except OSError as error:
        raise ReportError(f"{error.filename}: {error.strerror}") from error


def _distinct(records: Sequence[ReportData]) -> list[ReportData]:
    """Runs of the same name are numbered, past what others are called."""
    names = [run.name for run in records]
    taken = set(names)
    found = []
    for run in records:
        name = run.name
        if names.count(name) > 1:
            name = next(new for i in count(1) if (new := f"{run.name} ({i})") not in taken)
            taken.add(name)
        found.append(replace(run, name=name))
    return found


def _parameters(run: ReportData) -> dict[str, str]:
    """As people read them; what says nothing is left out."""
    return {
        name: _iso(value) if name == "begin" else str(value)
        for name, value in in_words(run.parameters).items()
        if value not in (None, {})
    }


def _differing(records: Sequence[ReportData]) -> dict[str, list[str]]:
    """The parameters that are not the same in all runs."""
    parameters = [_parameters(run) for run in records]
    names = dict.fromkeys(name for own in parameters for name in own)
    shown = {name: [own.get(name, "-") for own in parameters] for name in names}
    return {name: values for name, values in shown.items() if len(set(values)) > 1}


def _models(records: Sequence[ReportData]) -> dict[str, list[str]]:
    """Mean runtime of each model."""
    models = sorted({model for run in records for model in run.figures["runtime_by_model_h"]})
    return {
        model: [_hours(run.figures["runtime_by_model_h"].get(model)) for run in records] for model in models
    }


def _fit(name: str) -> str:
    """Fit for a file's name."""
    return re.sub(r"[^A-Za-z0-9.=_-]+", "-", name).strip("-.")[:60]


def _hours(hours: float | None) -> str:
    return "-" if hours is None else f"{hours:,.2f} h"


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.1%}" if whole else "-"


def _iso(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M")
