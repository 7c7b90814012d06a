"""Reads study files: from YAML text to a validated `StudySpec`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from bftrainer.messages.files.studies import (
    GRID_IS_COMPLETE,
    NO_STUDY,
    NO_WARM_START,
    NOT_IN_SPACE,
    SAID_BY_STUDY,
    TOO_MANY_POINTS,
    TRAINER_SPEC,
    UNUSED,
)
from bftrainer.model.trainer import TrainerSpec
from bftrainer.search.cost import MOST, StudyBounds, counted
from bftrainer.search.files.lint import check_meant
from bftrainer.search.files.schema import RESERVED, Range, StoppingForm, StudyForm
from bftrainer.search.files.space import Parameter, Params, PointReader
from bftrainer.search.fill import NAMED
from bftrainer.search.optuna.storage import checked
from bftrainer.search.study import Sampler, Stopping, StoppingKind, StudySpec, named_seed
from bftrainer.spec.explain import explain
from bftrainer.spec.located_yaml import STUDY, Document, SpecError, YamlLimits, compose
from bftrainer.spec.parse import convert

NEEDS = "a study needs at least name, trainer, space, metric, trials and budget"
THEIRS = ("name", "work", "weight", "priority")
"""Keys that a study sets for all its trainers, and the template cannot."""


def parse(
    text: str,
    name: str,
    base: Path,
    bounds: YamlLimits = STUDY,
    *,
    most: StudyBounds = MOST,
    accepted: bool = False,
) -> StudySpec:
    """A study from its YAML text. `name` is its file's, for messages; relative paths start at `base`.

    It costs no more than `most`. `accepted`: a daemon has taken it before, so what can be run is read, though
    it be hardly meant.

    Raises:
        SpecError: not a valid study; each line says where, what and what to do.
    """
    document = compose(text, name, bounds, NEEDS)
    if not isinstance(document.value, dict):
        raise SpecError(f"{name}:1: {NO_STUDY.say()}")
    if "command" in document.value and not {"trainer", "space"} & document.value.keys():
        raise SpecError(f"{name}:1: {TRAINER_SPEC.say()}")
    try:
        form = StudyForm.model_validate(document.value)
    except ValidationError as error:
        raise SpecError(explain(document, (), error, document.value, StudyForm)) from error
    space = tuple(_parameter(key, own) for key, own in form.space.items())
    spec = StudySpec(
        name=form.name,
        trainer=_template(document, form, base),
        space=space,
        metric=form.metric,
        maximize=form.direction == "maximize",
        trials=form.trials,
        budget=form.budget,
        stopping=_stopping(form.stopping),
        sampler=Sampler(form.sampler),
        parallelism=form.parallelism,
        retries=form.retries,
        give_up_after=form.give_up_after,
        deadline_s=form.deadline,
        node_hours=form.node_hours,
        target=form.target,
        plateau=form.plateau.results if form.plateau else None,
        change=form.plateau.change if form.plateau else 0.0,
        points=_points(document, form, space),
        warm_start=form.warm_start,
        seed=named_seed(form.name) if form.seed is None else form.seed,
        storage=None if form.storage is None else checked(form.storage, base),
        own_folders=form.folders == "own",
    )
    _check_names(document, spec)
    spec = counted(document, spec, most)
    if not accepted:
        check_meant(document, spec)
    return spec


def _template(document: Document, form: StudyForm, base: Path) -> TrainerSpec:
    for key in THEIRS:
        if key in form.trainer:
            at = f"{document.name}:{document.line(('trainer', key))}"
            raise SpecError(f"{at}: {SAID_BY_STUDY.say(key=key)}")
    added: dict[str, Any] = {"name": form.name, "work": {"samples": form.budget}}
    added |= {key: getattr(form, key) for key in ("weight", "priority") if getattr(form, key) is not None}
    return convert(document, ("trainer",), base, added)


def _parameter(name: str, own: Range) -> Parameter:
    low, high = own.float or own.int or (0.0, 0.0)
    return Parameter(
        name=name,
        kind=own.kind,
        low=float(low),
        high=float(high),
        log=own.log,
        step=own.step or 0.0,
        points=own.points or 0,
        choices=tuple(own.choice or ()),
        when=tuple((key, tuple(values)) for key, values in own.when.items()),
    )


def _points(document: Document, form: StudyForm, space: tuple[Parameter, ...]) -> tuple[Params, ...]:
    if (form.points or form.warm_start) and form.sampler == "grid":
        key = "points" if form.points else "warm_start"
        raise document.error((key,), GRID_IS_COMPLETE.say())
    if form.warm_start and form.sampler != "tpe":
        raise document.error(("warm_start",), NO_WARM_START.say(sampler=form.sampler))
    if len(form.points) > form.trials:
        raise document.error(
            ("points",),
            TOO_MANY_POINTS.say(points=len(form.points), trials=form.trials),
        )
    found, reader = [], PointReader(space)
    for i, given in enumerate(form.points):
        try:
            found.append(reader.read(given))
        except ValueError as error:
            raise document.error(("points", i), str(error)) from error
    return tuple(found)


def _stopping(form: StoppingForm) -> Stopping:
    for kind in (StoppingKind.HALVING, StoppingKind.HYPERBAND, StoppingKind.ASHA):
        own = getattr(form, kind.value)
        if own is not None:
            return Stopping(kind=kind, least=own.least, eta=own.eta)
    if form.median is not None:
        own = form.median
        return Stopping(kind=StoppingKind.MEDIAN, least=own.warmup, startup=own.startup)
    return Stopping()


def _check_names(document: Document, spec: StudySpec) -> None:
    """Check that braces in the command and environment name parameters, and that each parameter is used."""
    known = {own.name for own in spec.space} | set(RESERVED)
    words = [*spec.trainer.command, *(value for _, value in spec.trainer.env)]
    named = {name for word in words for name in re.findall(NAMED, word)}
    line = document.line(("trainer", "command"))
    for name in sorted(named - known):
        said = NOT_IN_SPACE.say(name=name, known=", ".join(sorted(known - set(RESERVED))))
        raise SpecError(f"{document.name}:{line}: {said}")
    named |= {name for own in spec.space for name, _ in own.when}
    for own in spec.space:
        if own.name not in named and "params" not in named:
            line = document.line(("space", own.name))
            raise SpecError(f"{document.name}:{line}: {UNUSED.say(name=own.name)}")
