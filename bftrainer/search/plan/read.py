"""Reads what a plan is made from: stages and a profile, both in YAML; errors name file and line."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from bftrainer.files import read_text
from bftrainer.model.text import shown
from bftrainer.search.plan.experiment import Experiment, ExperimentError, Stage, hyperband, successive_halving
from bftrainer.search.plan.profile import Profile
from bftrainer.search.plan.schema import ProfileKeys, StagesFile
from bftrainer.spec.located_yaml import QUOTED, SPEC, Document, SpecError, compose

M = TypeVar("M", bound=BaseModel)


def document(path: Path) -> Document:
    """The YAML document in a file.

    Raises:
        SpecError: unreadable, or no YAML as specs have it.
    """
    try:
        return compose(read_text(path, SPEC.kb), path.name)
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise error if isinstance(error, SpecError) else SpecError(f"{path}: {error}") from error


def profile(found: Document | None, study: Profile | None = None) -> Profile:
    """The profile in a document. What it does not say is as in `study`, what a study's trainer template says.

    Raises:
        SpecError: no valid profile, or nobody says how fast a trial is.
    """
    keys = _keys(found, ProfileKeys) if found else ProfileKeys()
    if keys.curve is None and study is None:
        where = f"{found.name}:1: " if found else ""
        raise SpecError(
            f"{where}how fast is a trial? Give curve: [[1, 100.0], [2, 190.0]], workers and samples/s"
        )
    return keys.profile(study.curve if study else (), (study.least, study.most) if study else None)


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
        raise SpecError(f"{found.name}:1: expected keys, such as {', '.join(list(model.model_fields)[:3])}")
    try:
        return model.model_validate(found.value)
    except ValidationError as error:
        lines = [_line(found, e["loc"], e["type"], e["msg"], e["input"], model) for e in error.errors()]
        raise SpecError("\n".join(lines[:20])) from error


def _line(
    found: Document, place: tuple[int | str, ...], kind: str, message: str, value: Any, model: type[BaseModel]
) -> str:
    name = ".".join(str(part) for part in place if not str(part).endswith("Keys") and part != "float")
    at = f"{found.name}:{found.line(place)}: "
    if kind == "extra_forbidden":
        valid = f"; valid keys: {', '.join(model.model_fields)}" if len(place) == 1 else ""
        return at + f"unknown key {shown(name)[:QUOTED]!r}{valid}"
    if kind == "missing":
        return at + f"{name!r} is missing; add it"
    said = "" if isinstance(value, dict | list) else f"{shown(repr(value))[:QUOTED]}: "
    return at + f"{name + ': ' if name else ''}{said}{shown(message.removeprefix('Value error, '))[:400]}"
