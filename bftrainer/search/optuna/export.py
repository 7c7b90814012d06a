"""Writes a study, as the API tells of it, into a storage of Optuna: for dashboards, and for users' code."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import optuna
from sqlalchemy.exc import SQLAlchemyError

from bftrainer.errors import BftrainerError
from bftrainer.files import strangers_beside
from bftrainer.messages.files.places import STRANGERS_DATABASE
from bftrainer.messages.files.studies import STORAGE_FAILS
from bftrainer.search.files.parse import parse
from bftrainer.search.optuna.frozen import frozen, space_of
from bftrainer.search.optuna.storage import file_of
from bftrainer.search.trial import RungResult, Trial, TrialStatus
from bftrainer.spec.located_yaml import SPECS

optuna.logging.set_verbosity(optuna.logging.ERROR)


def opened_safely(url: str) -> str:
    """The URL under which to open a storage: a file by its name without links, which others could exchange.

    Raises:
        BftrainerError: strangers can put files beside the storage's file.
    """
    path = file_of(url)
    if path is None:
        return url
    real = path.resolve()
    if why := strangers_beside(real):
        raise BftrainerError(STRANGERS_DATABASE.say(path=path, why=why))
    return f"{url.partition(':///')[0]}:///{real}"


def in_storage(study: Mapping[str, Any], url: str) -> optuna.Study:
    """Write the trials of a study that have ended, or have a result, in place of a study of its name there.

    Raises:
        BftrainerError: the storage cannot be opened or written, or strangers can put files beside it.
    """
    opened = opened_safely(url)
    try:
        storage = optuna.storages.RDBStorage(opened)
        with contextlib.suppress(KeyError):
            optuna.delete_study(study_name=study["name"], storage=storage)
        return as_optuna(study, storage)
    except (SQLAlchemyError, RuntimeError, ImportError, ValueError) as error:
        raise BftrainerError(STORAGE_FAILS.say(url=url, why=str(error).splitlines()[0])) from error


def as_optuna(study: Mapping[str, Any], storage: optuna.storages.BaseStorage | None = None) -> optuna.Study:
    """A study of Optuna with the trials that have ended, or have a result; in memory without a storage."""
    spec = parse(study["text"], study["name"], Path("/"), SPECS, accepted=True)
    space = space_of(spec)
    made = optuna.create_study(study_name=study["name"], storage=storage, direction=study["direction"])
    for row in study["table"]:
        trial = trial_of(row)
        if trial.results or trial.status.final:
            made.add_trial(frozen(spec, trial, space))
    return made


def trial_of(row: Mapping[str, Any]) -> Trial:
    """The trial that a row of the API describes, as far as its results go."""
    return Trial(
        number=row["number"],
        params=tuple(row["params"].items()),
        status=TrialStatus(row["status"]),
        rung=row["rung"],
        results=tuple(
            RungResult(rung=i, samples=at, value=value) for i, (at, value) in enumerate(row["results"])
        ),
        course=tuple((samples, value) for samples, value in row["course"]),
        began_at=row.get("began_at"),
        ended_at=row.get("ended_at"),
    )
