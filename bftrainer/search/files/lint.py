"""Refuses study files that are valid, but almost surely a mistake, with what to give instead.

A study that a daemon has accepted once is read without these checks.
"""

from __future__ import annotations

import re
from math import floor

from bftrainer.messages.files.studies import (
    NOT_BELOW_BUDGET,
    ONE_TRIAL,
    POINTS_OF_A_GRID,
    STARTUP,
    STEP_TOO_LARGE,
    USUALLY_MAXIMIZED,
)
from bftrainer.search.files.space import Kind, Parameter, Value
from bftrainer.search.study import Sampler, StoppingKind, StudySpec
from bftrainer.spec.located_yaml import Document
from bftrainer.threads import check
from bftrainer.yaml_files import QUOTED

MAXIMIZED = frozenset(
    {"acc", "accuracy", "auc", "auroc", "bleu", "dice", "f1", "iou", "precision", "psnr", "r2", "recall"}
    | {"reward", "rouge", "ssim", "top1", "top5"}
)
"""Words in the names of metrics of which more is better."""
MINIMIZED = frozenset({"err", "error", "loss"})
MOST_NAMED = 12
"""Values written out in a message, at most."""


def check_meant(document: Document, spec: StudySpec) -> None:
    """Check that each condition can hold, steps and points do something, and the median may stop a trial; and
    that a metric is not minimised by an oversight: the best trial would be the worst.

    Raises:
        SpecError: not so; it names the value, its bound and what to give.
    """
    words = set(re.split("[^a-z0-9]+", spec.metric.lower()))
    if ("direction",) not in document.lines and words & MAXIMIZED and not words & MINIMIZED:
        raise document.error(("metric",), USUALLY_MAXIMIZED.say(metric=spec.metric))
    known = {own.name: own for own in spec.space}
    for own in spec.space:
        _check_step(document, own)
        if own.points and spec.sampler is not Sampler.GRID:
            raise document.error(
                ("space", own.name, "points"),
                POINTS_OF_A_GRID.say(points=own.points, sampler=spec.sampler.value),
            )
        for name, all_ in own.when:
            for wanted, index in zip(all_, known[name].indices(all_), strict=True):
                check()
                if why := _never(known[name], wanted, index, grid=spec.sampler is Sampler.GRID):
                    raise document.error(("space", own.name, "when", name), why)
    if spec.stopping.kind is StoppingKind.MEDIAN:
        _check_median(document, spec)


def _check_step(document: Document, own: Parameter) -> None:
    span = own.high - own.low
    if own.step > span * (1 + 1e-9) and span > 0:
        raise document.error(
            ("space", own.name, "step"),
            STEP_TOO_LARGE.say(step=own.step, low=own.low, high=own.high, name=own.name, span=span),
        )


def _check_median(document: Document, spec: StudySpec) -> None:
    own, place = spec.stopping, ("stopping", "median")
    if own.least >= spec.budget:
        raise document.error(
            (*place, "warmup"),
            NOT_BELOW_BUDGET.say(key="warmup", least=own.least, budget=spec.budget),
        )
    if spec.trials == 1:
        raise document.error(place, ONE_TRIAL.say())
    if own.startup >= spec.trials:
        raise document.error(
            (*place, "startup"),
            STARTUP.say(startup=own.startup, trials=spec.trials, most=spec.trials - 1),
        )


def _never(parent: Parameter, wanted: Value, index: int | None, *, grid: bool) -> str:
    """Return why a parameter never has a value, which has this index on its grid, in words, with those that
    it may have; empty if it may."""
    said = repr(wanted)[:QUOTED]
    if parent.kind is Kind.CHOICE or (grid and not parent.step and parent.points):
        if index is not None:
            return ""
        values = [parent.value(i) for i in range(parent.count())]
        more = f", ... ({len(values)} in all)" if len(values) > MOST_NAMED else ""
        named = ", ".join(f"{value!r}"[:QUOTED] for value in values[:MOST_NAMED])
        return f"{parent.name} is never {said}; give one of its values: {named}{more}"
    if parent.kind is Kind.FLOAT and not parent.step:
        return (
            f"{parent.name} is any number from {parent.low:g} to {parent.high:g}, and exactly {said} in no "
            "trial; give it a step or a choice of values, or leave when out"
        )
    if index is not None:
        return ""
    step = parent.step or 1.0
    last = parent.low + floor((parent.high - parent.low) / step + 1e-9) * step
    kind = "whole numbers" if parent.kind is Kind.INT and step == 1 else f"numbers in steps of {step:g}"
    return f"{parent.name} is never {said}; give one of its values, {kind} from {parent.low:g} to {last:g}"
