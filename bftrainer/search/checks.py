"""What a new study file says that could be run, and yet cannot be meant: refused with what to give instead.

A study that a daemon has accepted once is read without these checks.
"""

from __future__ import annotations

from math import floor

from bftrainer.search.space import Kind, Parameter, Value, same
from bftrainer.search.study import Sampler, StoppingKind, StudySpec
from bftrainer.spec.located_yaml import QUOTED, Document, Location, SpecError

MOST_NAMED = 12
"""So many values are written out in a message."""


def check_meant(document: Document, spec: StudySpec) -> None:
    """Check that each condition can hold, steps and points do something, and the median may stop a trial.

    Raises:
        SpecError: not so; it names the value, its bound and what to give.
    """
    known = {own.name: own for own in spec.space}
    for own in spec.space:
        _check_step(document, own)
        if own.points and spec.sampler is not Sampler.GRID:
            raise _error(
                *(document, ("space", own.name, "points")),
                f"{own.points} points make a grid, and the sampler is {spec.sampler.value}; add "
                "sampler: grid, or leave points out",
            )
        for name, wanted in own.when:
            if why := _never(known[name], wanted, grid=spec.sampler is Sampler.GRID):
                raise _error(document, ("space", own.name, "when", name), why)
    if spec.stopping.kind is StoppingKind.MEDIAN:
        _check_median(document, spec)


def _check_step(document: Document, own: Parameter) -> None:
    span = own.high - own.low
    if own.step > span * (1 + 1e-9) and span > 0:
        raise _error(
            *(document, ("space", own.name, "step")),
            f"{own.step:g} is larger than the range from {own.low:g} to {own.high:g}, so that "
            f"{own.name} would be {own.low:g} in each trial; give at most {span:g}, or widen the range",
        )


def _check_median(document: Document, spec: StudySpec) -> None:
    own, place = spec.stopping, ("stopping", "median")
    if own.least >= spec.budget:
        raise _error(
            *(document, (*place, "warmup")),
            f"{own.least:,} samples are not below the budget of {spec.budget:,}; lower warmup, or raise "
            "budget",
        )
    if spec.trials == 1:
        raise _error(document, place, "a single trial has no others to be worse than; give stopping: none")
    if own.startup >= spec.trials:
        raise _error(
            *(document, (*place, "startup")),
            f"{own.startup:,} others are never there with {spec.trials:,} trials; give at most "
            f"{spec.trials - 1:,}, or raise trials",
        )


def _never(parent: Parameter, wanted: Value, *, grid: bool) -> str:
    """Why a parameter never has a value, in words, with those that it may have; empty if it may."""
    said = repr(wanted)[:QUOTED]
    if parent.kind is Kind.CHOICE or (grid and not parent.step and parent.points):
        values = parent.on_grid()
        if any(same(value, wanted) for value in values):
            return ""
        more = f", ... ({len(values)} in all)" if len(values) > MOST_NAMED else ""
        named = ", ".join(f"{value!r}"[:QUOTED] for value in values[:MOST_NAMED])
        return f"{parent.name} is never {said}; give one of its values: {named}{more}"
    if parent.kind is Kind.FLOAT and not parent.step:
        return (
            f"{parent.name} is any number from {parent.low:g} to {parent.high:g}, and exactly {said} in no "
            "trial; give it a step or a choice of values, or leave when out"
        )
    if _on_step(parent, wanted):
        return ""
    step = parent.step or 1.0
    last = parent.low + floor((parent.high - parent.low) / step + 1e-9) * step
    kind = "whole numbers" if parent.kind is Kind.INT and step == 1 else f"numbers in steps of {step:g}"
    return f"{parent.name} is never {said}; give one of its values, {kind} from {parent.low:g} to {last:g}"


def _on_step(parent: Parameter, wanted: Value) -> bool:
    """Whether a parameter with steps may have a value."""
    if isinstance(wanted, bool | str) or not parent.low <= wanted <= parent.high * (1 + 1e-12):
        return False
    step = parent.step or 1.0
    return same(parent.low + round((wanted - parent.low) / step) * step, wanted)


def _error(document: Document, place: Location, text: str) -> SpecError:
    """An error with the line of the value at `place`, or of what contains it."""
    at = f"{document.name}:{document.line(place)}"
    return SpecError(f"{at}: {'.'.join(str(part) for part in place)}: {text}")
