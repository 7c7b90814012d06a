"""The tables of a report: figures and parameters of several replays side by side, as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bftrainer.replay.record.data import ReportData
from bftrainer.replay.scenario import in_words
from bftrainer.traces.logs import iso

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


def figures(replays: Sequence[ReportData]) -> list[tuple[str, list[str], str]]:
    """The figures: label, one value per replay, and what that is."""
    return [(label, [show(data.figures) for data in replays], what) for label, show, what in FIGURES]


def parameters(data: ReportData) -> dict[str, str]:
    """A replay's parameters as text; those that are left open and mean nothing are left out."""
    return {
        name: utc(value) if name == "begin" else str(value)
        for name, value in in_words(data.parameters).items()
        if value not in (None, {})
    }


def differing(replays: Sequence[ReportData]) -> dict[str, list[str]]:
    """The parameters that are not the same in all replays: name -> one value per replay."""
    own = [parameters(data) for data in replays]
    names = dict.fromkeys(name for one in own for name in one)
    shown = {name: [one.get(name, "-") for one in own] for name in names}
    return {name: values for name, values in shown.items() if len(set(values)) > 1}


def runtimes(replays: Sequence[ReportData]) -> dict[str, list[str]]:
    """Mean runtimes: model -> one value per replay."""
    by_model = [data.figures["runtime_by_model_h"] for data in replays]
    models = sorted({model for hours in by_model for model in hours})
    return {model: [_hours(hours.get(model)) for hours in by_model] for model in models}


def utc(moment: float) -> str:
    """Unix seconds as date and time in UTC."""
    return iso(moment).replace("T", " ")[:16]


def _hours(hours: float | None) -> str:
    return "-" if hours is None else f"{hours:,.2f} h"


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.1%}" if whole else "-"
