"""Decides which trials go on and which end early. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from statistics import median

from bftrainer.model.text import counted
from bftrainer.search.brackets import Bracket
from bftrainer.search.study import StoppingKind
from bftrainer.search.trial import Study, Trial, TrialStatus
from bftrainer.threads import check

REASON = 200
"""Characters of the reason of a trial's end that are told with that of its study."""
NAMED, TOLD = 8, 200
"""Figures that a trial reports in place of the metric and that are kept to be told, and their characters in
all: a daemon keeps those of all trials, also of those that have failed."""
ALIKE = 0.8
"""Similarity from which on words are taken for one that was misspelt, as `score` and `skore`."""
SHORTEST = 5
"""A letter more or less says nothing of words that are shorter."""
COMPARED = 200
"""Longer names are compared with no other: a report's names have at most 100 characters each."""


def promote(study: Study) -> Study:
    """The study in which each paused trial whose rung is decided waits for its next one, or has ended."""
    for bracket in study.brackets:
        check()
        numbers = range(bracket.first, bracket.first + bracket.trials)
        own = [study.trials[n] for n in numbers if n in study.trials]
        if study.spec.stopping.kind is StoppingKind.ASHA:
            study = _as_soon_as_good(study, bracket, own)
        else:
            study = _together(study, bracket, own)
    return study


def _together(study: Study, bracket: Bracket, own: Sequence[Trial]) -> Study:
    """Successive halving: a rung is decided when no trial of the bracket may still reach it."""
    for rung in range(len(bracket.budgets) - 1):
        check()
        here = [t for t in own if t.status is TrialStatus.PAUSED and t.rung == rung]
        below = any(not t.status.final and (t.rung, t.status) != (rung, TrialStatus.PAUSED) for t in own)
        if here and not below and len(own) == bracket.trials:
            kept = _best(study, here)[: bracket.size(rung + 1)]
            return study.put(*(_onward(t) if t in kept else _worse(t, len(here), len(kept)) for t in here))
    return study


def _as_soon_as_good(study: Study, bracket: Bracket, own: Sequence[Trial]) -> Study:
    """ASHA: of the trials that have ended a rung, the best 1/eta go on at once. What is still paused when no
    trial can come any more ends."""
    for rung in range(len(bracket.budgets) - 1):
        check()
        done = [t for t in own if any(result.rung == rung for result in t.results)]
        if not done:  # nor has any trial ended a later one: of fifty rungs most are empty
            break
        ranked = sorted(done, key=lambda t: (study.spec.order(_value(t, rung)), t.number))
        kept = ranked[: len(ranked) // bracket.eta]
        onward = [t for t in kept if t.status is TrialStatus.PAUSED and t.rung == rung]
        study = study.put(*map(_onward, onward))
        own = [study.trials[t.number] for t in own]
    moving = any(t.status in (TrialStatus.RUNNING, TrialStatus.WAITING) for t in own)
    paused = [t for t in own if t.status is TrialStatus.PAUSED]
    if moving or not paused or len(own) < bracket.trials:
        return study
    furthest = max(t.rung for t in own if t.results)
    if furthest < len(bracket.budgets) - 1:
        # too few trials for a last rung: the best one has the whole budget
        best = min(
            (t for t in paused if t.rung == furthest),
            key=lambda t: study.spec.order(_value(t, t.rung)),
            default=None,
        )
        if best is not None:
            return study.put(_onward(best))
    return study.put(*(_worse(t, len(own), 0) for t in paused))


def falls_behind(study: Study, trial: Trial) -> str:
    """Return why a trial that runs should end by the rule of the median, in words; empty if it should not."""
    own = study.spec.stopping
    if own.kind is not StoppingKind.MEDIAN or trial.value is None or trial.samples < own.least:
        return ""
    others = [t.at(trial.samples) for t in study.trials.values() if t.number != trial.number]
    there = [value for value in others if value is not None]
    best = min((value for _, value in trial.course), key=study.spec.order, default=trial.value)
    if len(there) < own.startup or not study.spec.better(median(there), best):
        return ""
    middle = f"{median(there):g}, the median of {counted(len(there), 'other')}"
    return f"its best {study.spec.metric} of {best:g} is worse than {middle}"


def at_target(study: Study, trial: Trial, value: float) -> str:
    """Return why a study ends with this value of a trial, as good as was asked for; empty if it does not."""
    target = study.spec.target
    if target is None or study.spec.better(target, value):
        return ""
    return f"trial {trial.number} has reached {study.spec.metric} {value:g} (target: {target:g})"


def recorded(study: Study, value: float) -> Study:
    """The study with one more result."""
    best, change = study.record, study.spec.change
    if best is None or study.spec.better(value, best + (change if study.spec.maximize else -change)):
        return replace(study, record=value, since_record=0)
    return replace(study, since_record=study.since_record + 1)


def flat(study: Study) -> str:
    """Return why a study ends whose results get no better, in words. Empty if it goes on."""
    if study.spec.plateau is None or study.since_record < study.spec.plateau or study.record is None:
        return ""
    return (
        f"none of its last {study.since_record:,} results was better than {study.spec.metric} "
        f"{study.record:g} (plateau)"
    )


def in_doubt(study: Study) -> bool:
    """Return whether no new trial is to begin, as many have failed or report another metric and none has
    shown anything: most likely the command is wrong, or the script does not report the metric."""
    most, trials = study.spec.give_up_after, study.trials.values()
    if most is None or sum(t.status is TrialStatus.FAILED or misnamed(t) for t in trials) < most:
        return False
    return not any(t.measured or t.course or t.results for t in trials)


def hopeless(study: Study) -> str:
    """Return why a study ends in which trials have not ended yet, in words: it is in doubt, and no trial that
    has begun may still show something, or too many do not report the metric. Empty if it does not end."""
    if not in_doubt(study):
        return ""
    begun = [t for t in study.trials.values() if t.run]
    silent = [t for t in begun if t.measured is False or misnamed(t)]
    if len(silent) >= (study.spec.give_up_after or 0):
        first = min(silent, key=lambda t: t.number)
        return _given_up(study, len(silent), f"it reported {told(first)}", first)
    if len(begun) == study.spec.trials or any(not t.status.final for t in begun):
        return ""
    first = min((t for t in begun if t.status is TrialStatus.FAILED), key=lambda t: t.number)
    return _given_up(study, len(begun), first.reason[:REASON], first)


def _given_up(study: Study, count: int, why: str, first: Trial) -> str:
    return (
        f"{counted(count, 'trial')} ended without a report of {study.spec.metric!r} (give_up_after: "
        f"{study.spec.give_up_after}); trial {first.number}: {why}"
    )


def unmeasured(study: Study) -> str:
    """Return what a running trial reports in place of the metric, in words; empty while none is known to."""
    found = (t for t in study.trials.values() if t.figures and not t.status.final)
    first = min(found, key=lambda t: t.number, default=None)
    if study.status.final or first is None or any(t.measured for t in study.trials.values()):
        return ""
    return (
        f"trial {first.number} reports {told(first)}, and no {study.spec.metric!r} so far; a "
        "trial that has not reported it at the end of its rung fails"
    )


def misnamed(trial: Trial) -> bool:
    """Return whether a trial reports a misspelt metric. `loss` in place of `val_loss` does not count, nor
    `f1_macro` in place of `f1_micro`, as these may still come."""
    return not trial.measured and trial.misnamed


def reporting(study: Study, trial: Trial, names: Sequence[str]) -> Trial:
    """The trial that reports these figures in place of the metric. Names are compared here alone: once when
    they change, and not whenever a study decides."""
    slip = next((name for name in names if _alike(study.spec.metric, name)), "")
    misnamed = bool(slip) and any(_is_slip(study.spec.metric, name) for name in names)
    some = names[:NAMED]
    while len(some) > 1 and len(", ".join(some)) > TOLD:
        some = some[:-1]
    return replace(trial, figures=tuple(some), slip=slip, misnamed=misnamed)


def told(trial: Trial) -> str:
    """The figures that a script reports in place of the metric, in words, with what to do."""
    said = ", ".join(trial.figures) or "nothing"
    return said + (f"; is it 'metric: {trial.slip}'?" if trial.slip else "")


def _alike(one: str, other: str) -> bool:
    """Return whether two names have the same digits, and words that are alike one by one."""
    check()
    if max(len(one), len(other)) > COMPARED:
        return False
    first, second = ([*_words(name.casefold())] for name in (one, other))
    return len(first) == len(second) and all(
        a == b or (a.isalpha() and 2 * _common(a, b) >= ALIKE * (len(a) + len(b)))
        for a, b in zip(first, second, strict=True)
    )


def _is_slip(one: str, other: str) -> bool:
    """Return whether two names differ in case and punctuation alone, or in one word by a missing or exchanged
    letter. A letter in place of another one may mean another figure: mse and mae."""
    if max(len(one), len(other)) > COMPARED:
        return False
    first, second = ([*_words(name.casefold())] for name in (one, other))
    if "".join(first) == "".join(second):
        return True
    apart = [pair for pair in zip(first, second, strict=False) if pair[0] != pair[1]]
    return len(first) == len(second) and len(apart) == 1 and _is_typed_wrong(*sorted(apart[0], key=len))


def _is_typed_wrong(short: str, long: str) -> bool:
    """Return whether words differ by a missing letter, or by two exchanged neighbours."""
    if not (short.isalpha() and long.isalpha()) or len(long) < SHORTEST:
        return False
    same = next((i for i, (a, b) in enumerate(zip(short, long, strict=False)) if a != b), len(short))
    if len(short) + 1 == len(long):
        return short[same:] == long[same + 1 :]
    swapped = long[same + 1 : same + 2] + long[same : same + 1] + long[same + 2 :]
    return len(short) == len(long) and short[same:] == swapped


def _common(one: str, other: str) -> int:
    """The letters of the longest common subsequence of two words: a number has a bit for each letter of the
    first one, 0 where it is found, so that each letter of the second one takes a few additions."""
    places: dict[str, int] = {}
    for i, letter in enumerate(one):
        places[letter] = places.get(letter, 0) | 1 << i
    whole = bits = (1 << len(one)) - 1
    for letter in other:
        here = bits & places.get(letter, 0)
        bits = (bits + here | bits - here) & whole
    return len(one) - bits.bit_count()


def _words(name: str) -> Iterator[str]:
    for kind, own in groupby(name, lambda c: (c.isalpha(), c.isdigit())):
        if any(kind):
            yield "".join(own)


def _best(study: Study, trials: Sequence[Trial]) -> list[Trial]:
    return sorted(trials, key=lambda t: (study.spec.order(_value(t, t.rung)), t.number))


def _value(trial: Trial, rung: int) -> float:
    return next(result.value for result in trial.results if result.rung == rung)


def _onward(trial: Trial) -> Trial:
    return replace(trial, status=TrialStatus.WAITING, rung=trial.rung + 1)


def _worse(trial: Trial, of: int, kept: int) -> Trial:
    reason = (
        f"not among the best {kept} of {of} at rung {trial.rung}"
        if kept
        else f"not promoted from rung {trial.rung}"
    )
    return replace(trial, status=TrialStatus.STOPPED, reason=reason)
