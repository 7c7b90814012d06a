"""The page that a rehearsal ends with: what is the same, what differs first, and what to do. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from bftrainer.rehearsal.deviations import Aspect, Deviation
from bftrainer.rehearsal.explain import Cause
from bftrainer.rehearsal.records import RunRecord
from bftrainer.rehearsal.rehearse import Rehearsal
from bftrainer.rehearsal.yardstick import Growth

WIDTH = 100
ROWS = (
    (Aspect.STEPS, "steps"),
    (Aspect.SAMPLES, "samples of each step"),
    (Aspect.SETTINGS, "learning rates"),
    (Aspect.WEIGHTS, "weights"),
    (Aspect.STATE, "optimizer state"),
    (Aspect.FIGURES, "reported figures"),
    (Aspect.FILES, "files"),
)
WITHIN = {Aspect.RANKS: Aspect.WEIGHTS, Aspect.PROGRESS: Aspect.STEPS, Aspect.GRADIENTS: Aspect.WEIGHTS}
ONE = "one process"


def cells(found: Rehearsal) -> list[list[str]]:
    """The table: for each aspect, what each run has in common with the one in peace."""
    return [[title, *(_cell(found, run, aspect) for run in found.others)] for aspect, title in ROWS]


def _cell(found: Rehearsal, run: RunRecord, aspect: Aspect) -> str:
    if not run.is_whole:
        return run.status
    mine = [
        each
        for each in found.deviations
        if each.run == run.name and WITHIN.get(each.aspect, each.aspect) == aspect and each.is_fault
    ]
    if mine:
        step = min((each.step for each in mine if each.step is not None), default=None)
        return "differs" if step is None else f"differs, step {step}"
    if aspect == Aspect.STEPS:
        return f"same: {run.length}"
    if aspect == Aspect.WEIGHTS and run.length == found.alone.length:
        return f"same ({Growth.between(found.alone, run).upto((0, run.length)):.0e})"
    return "same"


def lines(found: Rehearsal) -> list[str]:
    """The text beneath the table."""
    said = [*_done(found), ""]
    if found.is_same:
        said.append("All is the same but what rounding and random numbers explain.")
    faults = [cause for cause in found.causes if cause.shown_by.is_fault]
    for number, group in enumerate(_grouped(faults), 1):
        said += ["", *_cause(found, number, group)]
    notes = list(dict.fromkeys(each.text for each in found.deviations if not each.is_fault))
    unused = [each for each in found.deviations if each.facts.get("unused")]
    said += [line for each in unused for line in _wrapped("- ", each.text)]
    if notes:
        said += ["", "To know:"] + [line for text in notes[:6] for line in _wrapped("- ", text)]
    return said


def _done(found: Rehearsal) -> Iterator[str]:
    """Describes each run, and the yardstick."""
    for run in found.others:
        if run.events:
            yield from _wrapped("", f"{run.title}: {'; '.join(run.events)}.")
    yardstick, key = found.yardstick, (0, found.alone.length)
    if any("unseeded" in each.facts for each in found.deviations):
        return  # the runs in peace are no yardstick
    text = f"Rounding explains differences of weights up to {yardstick.rounded(key):.0e}"
    if yardstick.is_random(found.alone):
        text += f"; random numbers drawn in training explain up to {yardstick.allowed(key):.1e}"
    if yardstick.batch_norm:
        text += "; batch normalisation sees less of a batch on several processes: they are compared roughly"
    yield from _wrapped("", f"{text}.")
    if found.cut is not None:
        steps = found.alone.length if found.launcher == "native" else found.cut  # native ends a step later
        text = f"Each run ended after {steps} steps"
        text += "" if found.launcher == "native" else "; what comes after its loop was not tried"
        yield from _wrapped("", f"{text}.")


def _grouped(causes: Sequence[Cause]) -> list[list[Cause]]:
    groups: dict[str, list[Cause]] = {}
    for cause in causes:
        groups.setdefault(f"{cause.shown_by.name}: {cause.remedy}", []).append(cause)
    return list(groups.values())


def _cause(found: Rehearsal, number: int, group: Sequence[Cause]) -> Iterator[str]:
    titles = {run.name: run.title for run in (found.alone, *found.others)}
    title = group[0].title
    begin = title if any(sign in title.split()[0] for sign in "./_") else f"{title[:1].upper()}{title[1:]}"
    yield from _wrapped(f"{number}. ", f"{begin}.")
    for cause in group:
        yield from _wrapped("   seen: ", f"{titles.get(cause.run, cause.run)}: {cause.shown_by.text}")
    yield from _wrapped("   do: ", group[0].remedy)


def _wrapped(begin: str, text: str) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent=begin, subsequent_indent=" " * len(begin), break_long_words=False
    ) or [begin]


def as_json(found: Rehearsal) -> dict[str, Any]:
    """All of it as plain values."""
    return {
        "name": found.name,
        "same": found.is_same,
        "steps": found.alone.length,
        "cut": found.cut,
        "seconds": round(found.seconds, 1),
        "rounding": found.yardstick.rounded((0, found.alone.length)),
        "random": found.yardstick.is_random(found.alone),
        "runs": [_run(found, run) for run in (found.alone, *found.others)],
        "differences": [_difference(each) for each in found.deviations],
        "causes": [
            {
                "run": c.run,
                "cause": c.title,
                "remedy": c.remedy,
                "seen": c.shown_by.text,
                "fault": c.shown_by.is_fault,
            }
            for c in found.causes
        ],
    }


def _run(found: Rehearsal, run: RunRecord) -> dict[str, Any]:
    return {
        "name": run.name,
        "title": run.title,
        "nodes": run.nodes,
        "status": run.status,
        "reason": run.reason,
        "steps": run.length,
        "taken": run.taken,
        "events": list(run.events),
        "weights_apart": Growth.between(found.alone, run).upto((0, run.length)),
        "files": sorted(run.files),
    }


def _difference(each: Deviation) -> dict[str, Any]:
    return {
        "run": each.run,
        "what": each.aspect.value,
        "name": each.name,
        "step": each.step,
        "text": each.text,
        "apart": each.apart,
        "allowed": each.allowed,
        "fault": each.is_fault,
    }
