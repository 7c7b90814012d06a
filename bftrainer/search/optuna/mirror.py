"""Keeps a study of Optuna like one of the daemon, while its trials run: for dashboards and users' code.

Of a trial that goes on, Optuna's is running, and its intermediate values are the metric by samples. What is
in the storage already is not written again, whoever has written it before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import RDBStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial
from sqlalchemy.exc import SQLAlchemyError

from bftrainer.errors import BftrainerError
from bftrainer.messages.files.studies import NO_STORAGE_FOLDER, STORAGE_FAILS
from bftrainer.search.files.parse import parse
from bftrainer.search.optuna.export import opened_safely, trial_of
from bftrainer.search.optuna.frozen import frozen, space_of
from bftrainer.search.optuna.storage import file_of, shown
from bftrainer.spec.located_yaml import SPECS

optuna.logging.set_verbosity(optuna.logging.ERROR)

FAILURES = (
    SQLAlchemyError,
    optuna.exceptions.OptunaError,
    LookupError,  # somebody has deleted the study, or a trial of it: it is rewritten
    RuntimeError,
    ImportError,
    ValueError,
    OSError,
)
LOCKED_S = 10.0
"""Seconds that a file of SQLite may be locked by others."""
OWNER, TRIAL, ENDED = "bftrainer_study", "number", "bftrainer_ended"
"""Attributes: whose a study in the storage is, which trial one is, and that a study has ended."""


@dataclass(slots=True)
class Written:
    """A trial in the storage: its id there, if it has ended, its values by samples, its status."""

    id: int
    over: bool
    values: dict[int, float]
    status: object


@dataclass(slots=True)
class Opened:
    """A study in its storage, with our trials that it has by number."""

    storage: RDBStorage
    id: int
    name: str
    trials: dict[int, Written] = field(default_factory=dict)


class NoFolderError(BftrainerError, OSError):
    """The folder of a storage's file is missing."""


class Mirror:
    """Writes one study into the storage `url`. To be used by one thread."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._opened: Opened | None = None

    def update(self, study: Mapping[str, Any]) -> str:
        """Write what has changed of a study, as the API tells of it. Returns its name in the storage: that of
        the study, and behind it its number if another study there has that name.

        Raises:
            NoFolderError: there is no folder for the storage's file.
            BftrainerError: the storage cannot be reached or written now; to be tried again. Or strangers can
            put files beside it.
        """
        try:
            if self._opened is None:
                self._opened = _open(self._url, study)
            _write(self._opened, study)
        except FAILURES as error:
            self._opened = None
            if isinstance(error, NoFolderError):
                raise NoFolderError(f"{shown(self._url)}: {error}") from error
            raise BftrainerError(STORAGE_FAILS.say(url=shown(self._url), why=why(error))) from error
        return self._opened.name


def why(error: BaseException) -> str:
    """The reason in a line: of Optuna's errors the one below, which says what is wrong."""
    cause = error.__cause__ if isinstance(error, optuna.exceptions.StorageInternalError) else None
    original = getattr(cause or error, "orig", None)
    return f"{original or cause or error}".splitlines()[0][:300]


def _open(url: str, study: Mapping[str, Any]) -> Opened:
    path = file_of(url)
    if path is not None and not path.parent.is_dir():
        raise NoFolderError(NO_STORAGE_FOLDER.say(folder=path.parent))
    options = {"connect_args": {"timeout": LOCKED_S}} if path is not None else {"pool_pre_ping": True}
    storage = RDBStorage(opened_safely(url), engine_kwargs=options)
    owner = [study["id"], study["submitted_at"]]
    names = {own.study_name: own for own in storage.get_all_studies()}
    name = study["name"]
    if name in names and names[name].user_attrs.get(OWNER) != owner:
        name = f"{name}-{study['id']}"
    if name in names:
        opened = Opened(storage, names[name]._study_id, name)
        opened.trials = _known(storage.get_all_trials(opened.id, deepcopy=False))
        return opened
    direction = StudyDirection.MAXIMIZE if study["direction"] == "maximize" else StudyDirection.MINIMIZE
    id_ = storage.create_new_study([direction], name)
    storage.set_study_user_attr(id_, OWNER, owner)
    storage.set_study_system_attr(id_, "study:metric_names", [study["metric"]])
    return Opened(storage, id_, name)


def _known(trials: Iterable[FrozenTrial]) -> dict[int, Written]:
    """Those of the trials that a mirror has written, by number."""
    return {
        t.user_attrs[TRIAL]: Written(
            t._trial_id, t.state.is_finished(), dict(t.intermediate_values), t.user_attrs.get("status")
        )
        for t in trials
        if TRIAL in t.user_attrs
    }


def _write(opened: Opened, study: Mapping[str, Any]) -> None:
    spec = parse(study["text"], study["name"], Path("/"), SPECS, accepted=True)
    space = space_of(spec)
    for row in study["table"]:
        known = opened.trials.get(row["number"])
        if known is None or not known.over:
            _put(opened, frozen(spec, trial_of(row), space, live=True), known)
    if study["ended_at"] and ENDED not in opened.storage.get_study_user_attrs(opened.id):
        opened.storage.set_study_user_attr(opened.id, ENDED, study["status"])


def _put(opened: Opened, trial: FrozenTrial, known: Written | None) -> None:
    """Write a trial that is new, or what has changed of it."""
    storage, number = opened.storage, trial.user_attrs[TRIAL]
    status, over = trial.user_attrs["status"], trial.state.is_finished()
    if known is None:
        id_ = storage.create_new_trial(opened.id, template_trial=trial)
        opened.trials[number] = Written(id_, over, dict(trial.intermediate_values), status)
        return
    for samples, value in trial.intermediate_values.items():
        if known.values.get(samples) != value:
            storage.set_trial_intermediate_value(known.id, samples, value)
            known.values[samples] = value
    if known.status != status:
        storage.set_trial_user_attr(known.id, "status", status)
        known.status = status
    if over:
        storage.set_trial_state_values(known.id, trial.state, trial.values)
        known.over = True
