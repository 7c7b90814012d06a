"""Reads what a plan is made from: a study or stages, and a profile, in YAML; errors name file and line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from bftrainer.messages.files.plans import NO_ROOM_FOR_TRIAL, NO_SPEED, TRIAL_FOR_AGES
from bftrainer.messages.files.tables import NOT_IN_FORM
from bftrainer.search.files.parse import NEEDS, parse
from bftrainer.search.plan import of_study
from bftrainer.search.plan.model.experiment import (
    Experiment,
    ExperimentError,
    Stage,
    hyperband,
    successive_halving,
)
from bftrainer.search.plan.model.profile import ExperimentProfile
from bftrainer.search.plan.schema import ProfileKeys, StagesFile
from bftrainer.spec.explain import explain
from bftrainer.spec.located_yaml import STUDY, Document, SpecError, compose
from bftrainer.spec.parse import read

SEARCH_NEEDS = f"a search needs stages, halving or hyperband; {NEEDS}"
PROFILE_NEEDS = (
    "a profile needs at least curve, such as curve: [[1, 100.0], [2, 190.0]], workers and samples/s"
)

M = TypeVar("M", bound=BaseModel)

MOST_TRIAL_S = 1e12
"""Seconds of a trial in a stage, at most: sums of longer times and their costs would overflow."""


@dataclass(frozen=True, slots=True)
class Search:
    """The input of planning: the experiments, and their study, if they are of one."""

    experiments: tuple[Experiment, ...]
    profile: ExperimentProfile
    deadline_s: float | None


def search(path: Path, profile_path: Path | None) -> Search:
    """A study, or a file with stages, and the profile in another file; what that lacks is the study's.

    Raises:
        SpecError: a file is no valid one, or neither says how fast a trial is.
    """
    text = read(path)
    found = compose(text, path.name, STUDY, needs=SEARCH_NEEDS)
    study = None
    if isinstance(found.value, dict) and "trainer" in found.value:
        study = parse(text, path.name, path.absolute().parent)
    keys = ProfileKeys()
    if profile_path:
        keys = _keys(compose(read(profile_path), profile_path.name, STUDY, needs=PROFILE_NEEDS), ProfileKeys)
    own = keys.profile(of_study.profile(study) if study else None)
    if not own.curve:
        where = profile_path or path
        raise SpecError(f"{where}:1: {NO_SPEED.say()}")
    if own.least > (room := own.nodes * own.node_workers):
        said = NO_ROOM_FOR_TRIAL.say(least=own.least, nodes=own.nodes, each=own.node_workers, room=room)
        raise SpecError(f"{profile_path or path}:1: {said}")
    made = of_study.experiments(study, own.iteration_samples) if study else experiments(found)
    longest = max(stage.iterations for experiment in made for stage in experiment.stages)
    if not (seconds := longest * own.iteration_s(own.least)) <= MOST_TRIAL_S:
        said = TRIAL_FOR_AGES.say(iterations=longest, seconds=seconds, workers=own.least, most=MOST_TRIAL_S)
        raise SpecError(f"{profile_path or path}:1: {said}")
    return Search(made, own, study.deadline_s if study else None)


def experiments(found: Document) -> tuple[Experiment, ...]:
    """The stages in a document: `stages`, `halving` or `hyperband`, whose brackets are one experiment each.

    Raises:
        SpecError: no valid stages.
    """
    keys = _keys(found, StagesFile)
    try:
        if keys.stages is not None:
            return (Experiment(keys.name, tuple(Stage(s.trials, s.iterations) for s in keys.stages)),)
        if keys.halving is not None:
            own = keys.halving
            return (successive_halving(own.trials, own.least, own.most, own.eta, keys.name),)
        assert keys.hyperband is not None  # noqa: S101  one of the three is given
        return hyperband(keys.hyperband.most, keys.hyperband.eta, keys.hyperband.least)
    except ExperimentError as error:
        raise SpecError(f"{found.name}: {error}") from error


def _keys(found: Document, model: type[M]) -> M:
    if not isinstance(found.value, dict):
        form = f"mapping with keys such as {', '.join(list(model.model_fields)[:3])}"
        said = NOT_IN_FORM.say(part=type(found.value).__name__, form=form)
        raise SpecError(f"{found.name}:1: {said}")
    try:
        return model.model_validate(found.value)
    except ValidationError as error:
        raise SpecError(explain(found, (), error, found.value, model)) from error
