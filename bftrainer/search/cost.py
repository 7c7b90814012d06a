"""Counts what a study would cost before anything of it is made: values, points, trials, bytes. Pure.

Whoever reads a study file counts first: the daemon at submit and when it reads stored studies, and commands.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from bftrainer.errors import BftrainerError
from bftrainer.messages.files.studies import (
    GRID_HAS_POINTS,
    GRID_TOO_LARGE,
    NO_GRID,
    POINTS_ABOVE,
    POINTS_FORM,
    STUDY_TOO_LARGE,
    TRIALS_ABOVE,
)
from bftrainer.model.text import held as memory
from bftrainer.search.decide import check_room
from bftrainer.search.events import Add
from bftrainer.search.files.space import Kind, Parameter, PointReader
from bftrainer.search.fill import NAMED, as_word
from bftrainer.search.grid import Grid, TangledError
from bftrainer.search.study import Sampler, StudySpec
from bftrainer.search.trial import Study
from bftrainer.spec.located_yaml import Document

MOST_TRIALS = 100_000
"""Trials of a study, and so values of a parameter on a grid, wherever it is read."""
MOST_POINTS = 1_000
"""Known points that are added at once."""
ALLOWED = "the most here (max_trials)"
NUMBER = 25
"""Bytes of a number, as text, at most: a floating-point number has up to 24."""
KB = 1000
TRIAL = 2000
"""Bytes of memory of a trial beside its parameters: its course, results and reason, or what it reports."""
PAIR = 80
"""Bytes of memory of a parameter's value in a trial or a known point, beside its name and text."""
STUDY_MB = 16
"""MB of all trials of a study that a daemon takes: it keeps those of unfinished studies in memory."""
USER_MB = 64
"""MB of all trials of all unfinished studies of a user that a daemon takes, with what becomes of them."""
ALL_MB = 1000
"""MB of those of all users: a quarter of the memory that the unit allows."""


@dataclass(frozen=True, slots=True)
class StudyBounds:
    """Bounds on a study's cost: trials, kB of the command and environment of one trial with its values, and
    MB of these and of the parameters of all its trials together; and the same of all unfinished studies of
    its user, and of all users, with what becomes of their trials. Others of the user have `taken` bytes of
    that, those of all users `of_all`."""

    trials: int
    trial_kb: int
    study_mb: int = STUDY_MB
    user_mb: int = USER_MB
    taken: int = 0
    of_all: int = 0

    def room(self, spec: StudySpec) -> tuple[int, int, str]:
        """Return how many trials the study may have, the bytes of each, and what bounds all of them."""
        each = sum(bytes_of_trial(spec))
        most = self.study_mb * KB * KB // each, each, f"{self.study_mb} MB"
        for whose, mb, taken in (("your", self.user_mb, self.taken), ("all users'", ALL_MB, self.of_all)):
            left = max(0, mb * KB * KB - taken)
            told = f"{left / KB / KB:.1f} MB, what {whose} other studies leave of {mb:,} MB,"
            most = min(most, (left // (each + TRIAL), each + TRIAL, told))
        return most


MOST = StudyBounds(trials=MOST_TRIALS, trial_kb=256, study_mb=1000, user_mb=1000)
"""The largest bounds that settings allow: no daemon has accepted a study beyond them."""


def counted(document: Document, spec: StudySpec, most: StudyBounds) -> StudySpec:
    """The study; one on a grid with no more trials than the grid has points.

    Raises:
        SpecError: it would cost more than it may; the message names value, bound and what to do.
    """
    if spec.sampler is Sampler.GRID:
        spec = replace(spec, trials=_points(document, spec, most.trials))
    if spec.trials > most.trials:
        said = f"{spec.trials:,} is" if spec.sampler is not Sampler.GRID else "the points of the grid are"
        raise document.error(("trials",), TRIALS_ABOVE.say(said=said, most=most.trials, which=ALLOWED))
    filled, _ = bytes_of_trial(spec)
    if filled > most.trial_kb * KB:
        what, bound = "with a trial's values, command and env have", f"{most.trial_kb} kB (max_spec_kb)"
        said = STUDY_TOO_LARGE.say(what=what, size=f"{filled:,} bytes", most=bound)
        raise document.error(("trainer", "command"), said)
    fit, each, bound = most.room(spec)
    if spec.trials > fit:
        whole = spec.trials * each
        what = f"command, env and parameters of {spec.trials:,} trials have"
        size = f"{whole / KB / KB:,.0f} MB"
        raise document.error(("trials",), STUDY_TOO_LARGE.say(what=what, size=size, most=bound))
    return spec


def addition(study: Study, trials: int, points: Sequence[object], most: StudyBounds) -> Add:
    """Trials and known points that a user adds to a study, counted first.

    Raises:
        BftrainerError: the study would cost more than it may, or a point is none of its space, or there are
            more than trials that have not begun.
    """
    spec, total = study.spec, study.spec.trials + trials
    if total > most.trials:
        raise BftrainerError(_in_all(total, most.trials, ALLOWED))
    grid = Grid(spec.space, most.trials).size if spec.sampler is Sampler.GRID else most.trials
    if total > grid:
        raise BftrainerError(_in_all(total, grid, "the points of the grid"))
    fit, _, bound = most.room(spec)
    if trials and total > fit:
        raise BftrainerError(_in_all(total, fit, f"as many as fit into {bound}".rstrip(",")))
    if points and spec.sampler is Sampler.GRID:
        raise BftrainerError(GRID_HAS_POINTS.say())
    if len(points) > MOST_POINTS:
        raise BftrainerError(POINTS_ABOVE.say(points=len(points), room=MOST_POINTS))
    check_room(study, trials, len(points))
    reader = PointReader(spec.space)
    read = []
    for point in points:
        if not isinstance(point, dict) or not point:
            raise BftrainerError(POINTS_FORM.say())
        try:
            read.append(reader.read(point))
        except ValueError as error:
            raise BftrainerError(str(error)) from error
    return Add(trials=trials, points=tuple(read), most=min(grid, fit))


def _in_all(total: int, most: int, which: str) -> str:
    return TRIALS_ABOVE.say(said=f"{total:,} trials in all are", most=most, which=which)


def bytes_of_trial(spec: StudySpec) -> tuple[int, int]:
    """Return how many bytes a trial's command and environment have at most, and its parameters: as JSON, and
    each with what Python needs to hold it, which is most of it where values are short."""
    as_json = {own.name: _longest(own, as_json=True) for own in spec.space}
    params = 2 + sum(len(name) + len('"": , ') + size for name, size in as_json.items())
    words = {own.name: _longest(own, as_json=False) for own in spec.space}
    words |= {"trial": NUMBER, "seed": NUMBER, "params": params}
    texts = [*spec.trainer.command, *(value for _, value in spec.trainer.env)]
    names = sum(len(key) for key, _ in spec.trainer.env)
    return names + sum(_filled(text, words) for text in texts), params + PAIR * len(spec.space)


def held_by_trial(spec: StudySpec) -> int:
    """The bytes of memory of a trial, at most, with what becomes of it."""
    return sum(bytes_of_trial(spec)) + TRIAL


def _filled(text: str, words: Mapping[str, int]) -> int:
    """The bytes of a text with values of these sizes in place of names in braces."""
    named = re.findall(NAMED, text)
    return len(text.encode()) + sum(words[name] - len(name) - 2 for name in named if name in words)


def _longest(own: Parameter, *, as_json: bool) -> int:
    """The bytes of a parameter's longest value, as JSON or as a word."""
    if own.kind is not Kind.CHOICE:
        return NUMBER
    texts = [json.dumps(value) if as_json else as_word(value) for value in own.choices]
    return max(*(len(text.encode()) for text in texts), *(memory(as_word(value)) for value in own.choices))


def _points(document: Document, spec: StudySpec, most: int) -> int:
    """Return a grid study's number of trials: one more than the most stands for any that are too many."""
    for own in spec.space:
        if not own.count():
            said = NO_GRID.say(otherwise="" if own.log else ", or step: N")
            raise document.error(("space", own.name), said)
        if own.count() > MOST_TRIALS:
            said = GRID_TOO_LARGE.say(count=own.count(), most=MOST_TRIALS)
            raise document.error(("space", own.name), said)
    try:
        return Grid(spec.space, min(spec.trials, most + 1)).size
    except TangledError as error:
        raise document.error(("space",), str(error)) from error
