"""Explains deviations: the usual causes of their pattern, each with its remedy. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bftrainer.messages.trying import (
    ALL_WRITE,
    BEGINS_ANEW,
    ENDS_BADLY,
    FACTOR,
    FIGURE_ANEW,
    FILE_ANEW,
    FILLED_UP,
    FOLLOWS_COUNT,
    FROM_NOTHING,
    KEPT_BY_SCRIPT,
    LINES_TWICE,
    LOSS_IS_SUM,
    NOT_FOLLOWED,
    NOT_RESUMED,
    NOT_SAME,
    NOT_WRITTEN,
    ONE_RANKS_FIGURE,
    OPTIMIZER_ANEW,
    OTHER_END,
    OTHER_FILES,
    OTHER_PLACE,
    OTHER_STEPS,
    OWN_NUMBERS,
    RANKS_DIFFER,
    SAME_SAMPLES,
    SCHEDULE_ANEW,
    SECOND_LOADER,
    UNSEEDED,
    WHOLE_BATCH_LOSS,
    WHOLE_BATCHES,
)
from bftrainer.rehearsal.deviations import Aspect, Deviation
from bftrainer.rehearsal.records import RunRecord

FIRST_STEPS = 2
"""Deviations in this many first steps are not due to a change of nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """A cause that explains a pattern, what shows it, and what to do."""

    run: str
    title: str
    remedy: str
    shown_by: Deviation


def _cause(run: RunRecord, found: Deviation, said: tuple[str, str]) -> Cause:
    """A cause that a deviation of a run shows, by a message's parts."""
    return Cause(run=run.name, title=said[0], remedy=said[1], shown_by=found)


def explain(run: RunRecord, alone: RunRecord, found: Sequence[Deviation], launcher: str) -> list[Cause]:
    """The causes of a run's deviations, those first that explain others."""
    causes = list(_causes(run, alone, {each.aspect: each for each in reversed(found)}, launcher))
    files = {each.name: each for each in found if each.aspect == Aspect.FILES}
    causes += [cause for each in files.values() for cause in _of_file(run, each)]
    kept = next((each for each in found if each.aspect == Aspect.VARIABLES), None)
    variables: Sequence[str] = kept.facts["names"] if kept is not None else ()
    told = {cause.shown_by.aspect for cause in causes}
    rest = next((each for each in found if each.is_fault and each.aspect not in told), None)
    if not any(cause.shown_by.is_fault for cause in causes) and rest is not None:
        causes.append(_unknown(run, rest, variables))
    return causes


def _causes(run: RunRecord, alone: RunRecord, by: dict[Aspect, Deviation], launcher: str) -> Iterator[Cause]:
    if Aspect.END in by:
        yield _ended(run, by[Aspect.END])
        return
    if found := next((each for each in by.values() if "unseeded" in each.facts), None):
        yield _unseeded(run, found, launcher)
        return
    if Aspect.PROGRESS in by:
        yield _anew(run, by[Aspect.PROGRESS], launcher)
    if Aspect.RANKS in by and run.nodes + len(run.events) > 1:
        yield _ranks(run, by[Aspect.RANKS])
    samples, weights = by.get(Aspect.SAMPLES), by.get(Aspect.WEIGHTS)
    settings = by.get(Aspect.SETTINGS)
    if samples is not None and Aspect.STEPS not in by and _is_filled_up(samples):
        yield _filled_up(run, samples)
    elif Aspect.STEPS in by or (samples is not None and samples.facts["times"] > 1.5):
        yield from _shared_out(run, alone, by.get(Aspect.STEPS), samples, launcher)
    elif samples is not None and (weights is None or _not_after(samples, weights)):
        yield _other_samples(run, samples, launcher)
    elif settings is not None and (weights is None or _not_after(settings, weights)):
        yield _schedule(run, settings, weights, launcher)
    elif weights is not None and "final" not in weights.facts:
        yield _of_weights(run, weights, launcher)
    elif weights is not None or Aspect.STATE in by:
        yield _of_state(run, by.get(Aspect.WEIGHTS, by.get(Aspect.STATE)))  # type: ignore[arg-type]
    figure = by.get(Aspect.FIGURES)
    if figure is not None and figure.is_fault and weights is None and Aspect.STEPS not in by:
        yield _figure(run, figure, launcher)


def _not_after(one: Deviation, other: Deviation) -> bool:
    return (one.step or 0) <= (other.step or 0) or other.step is None


def _ended(run: RunRecord, found: Deviation) -> Cause:
    return _cause(run, found, (NOT_FOLLOWED if run.trouble else ENDS_BADLY).parts())


def _unseeded(run: RunRecord, found: Deviation, launcher: str) -> Cause:
    what = {
        "weights": "the first weights",
        "samples": "which samples there are, or their order",
        "steps": "something in the first step",
    }[found.facts["unseeded"]]
    return _cause(run, found, UNSEEDED.parts(what=what))


def _anew(run: RunRecord, found: Deviation, launcher: str) -> Cause:
    return _cause(run, found, (FROM_NOTHING if launcher == "native" else NOT_RESUMED).parts())


def _ranks(run: RunRecord, found: Deviation) -> Cause:
    return _cause(run, found, RANKS_DIFFER.parts())


def _shared_out(
    run: RunRecord, alone: RunRecord, steps: Deviation | None, samples: Deviation | None, launcher: str
) -> Iterator[Cause]:
    facts = samples.facts if samples is not None else {}
    shown = steps or samples
    assert shown is not None  # noqa: S101  one of them is there
    fewer = run.length < alone.length
    if facts.get("shared"):
        message = SAME_SAMPLES
    elif facts.get("times", 1.0) > 1.5 or (fewer and steps is not None and steps.facts["ranks"] > 1):
        message = WHOLE_BATCHES
    else:
        message = OTHER_STEPS
    yield _cause(run, shown, message.parts())


def _is_filled_up(found: Deviation) -> bool:
    """True if the first step with other samples has all those of one process, and more of the data."""
    facts = found.facts
    adds = facts["common"] >= 1.0 and facts["times"] > 1.0 and facts["known"] >= 0.9
    return adds and not facts["shared"] and (found.step or 0) > 1


def _filled_up(run: RunRecord, found: Deviation) -> Cause:
    return _cause(run, found, FILLED_UP.parts())


def _other_samples(run: RunRecord, found: Deviation, launcher: str) -> Cause:
    facts = found.facts
    if facts.get("shared"):
        message = SAME_SAMPLES
    elif (found.step or 0) > FIRST_STEPS and facts["known"] >= 0.9:
        message = OTHER_PLACE
    elif facts["known"] < 0.9 and abs(facts["times"] - 1.0) < 0.01:
        message = OWN_NUMBERS
    else:
        message = SECOND_LOADER
    return _cause(run, found, message.parts())


def _schedule(run: RunRecord, found: Deviation, weights: Deviation | None, launcher: str) -> Cause:
    if (found.step or 0) <= FIRST_STEPS:
        return _cause(run, found, FOLLOWS_COUNT.parts(name=found.name))
    return _cause(run, found, SCHEDULE_ANEW.parts(name=found.name, counts=_counters(weights)))


def _counters(weights: Deviation | None) -> str:
    variables = weights.facts.get("variables", {}) if weights is not None else {}
    low = [
        f"{name} is {mine:g}, not {theirs:g}"
        for name, (mine, theirs) in variables.items()
        if _is_count(mine, theirs)
    ]
    return f": {', '.join(low[:3])}" if low else ""


def _is_count(mine: float, theirs: float) -> bool:
    """True if a variable was reset: it is nearer to its beginning than on one process."""
    return 0 <= mine < theirs


def _of_weights(run: RunRecord, found: Deviation, launcher: str) -> Cause:
    times, ranks, step = found.facts.get("factor"), found.facts.get("ranks", 1), found.step or 0
    if times is not None and ranks > 1 and abs(times * ranks - 1.0) < 0.1:
        return _cause(run, found, LOSS_IS_SUM.parts(times=times))
    anew = _counters(found) if step > FIRST_STEPS else ""
    if times is not None and not anew:  # what depends on a count may look like a factor for a step
        return _cause(run, found, FACTOR.parts(times=times))
    if ranks > 1 and step <= FIRST_STEPS:
        return _cause(run, found, WHOLE_BATCH_LOSS.parts())
    return _cause(run, found, KEPT_BY_SCRIPT.parts(counts=_counters(found)))


def _of_state(run: RunRecord, found: Deviation) -> Cause:
    return _cause(run, found, OTHER_END.parts())


def _figure(run: RunRecord, found: Deviation, launcher: str) -> Cause:
    if run.nodes > 1 or any(facts.ranks > 1 for facts in run.steps.values()):
        return _cause(run, found, ONE_RANKS_FIGURE.parts(name=found.name))
    return _cause(run, found, FIGURE_ANEW.parts(name=found.name))


def _of_file(run: RunRecord, found: Deviation) -> Iterator[Cause]:
    facts = found.facts
    several = run.nodes > 1
    said = None
    if facts.get("anew"):
        said = FILE_ANEW.parts(name=found.name)
    elif facts.get("repeated") and several and not run.events:
        said = ALL_WRITE.parts(name=found.name)
    elif facts.get("repeated"):
        said = LINES_TWICE.parts(name=found.name)
    elif facts.get("extra"):
        said = OTHER_FILES.parts()
    elif facts.get("missing"):
        said = NOT_WRITTEN.parts(name=found.name)
    if said is not None:
        yield _cause(run, found, said)


def of_unused(found: Deviation) -> Cause:
    """The cause of an optimizer that never steps."""
    title, remedy = OPTIMIZER_ANEW.parts()
    return Cause(run=found.run, title=title, remedy=remedy, shown_by=found)


def _unknown(run: RunRecord, found: Deviation, variables: Sequence[str]) -> Cause:
    is_file = found.aspect == Aspect.FILES
    named = f" ({', '.join(variables[:4])})" if variables else ""
    name = found.name or found.aspect.value
    if is_file or found.aspect == Aspect.FIGURES:
        return _cause(run, found, BEGINS_ANEW.parts(name=name, named=named))
    return _cause(run, found, NOT_SAME.parts(name=found.aspect.value))
