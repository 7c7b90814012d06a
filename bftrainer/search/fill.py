"""From a trial to its trainer: the study's template with the trial's values. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace

from bftrainer.model.trainer import TrainerSpec
from bftrainer.search.files.space import Params, Value
from bftrainer.search.study import StudySpec, seed_of

NAMED = r"\{([A-Za-z_][A-Za-z0-9_]*)\}"
"""A name in braces."""


def trainer_of(
    spec: StudySpec, number: int, params: Params, *, run: int, samples: int, checkpoint_dir: str
) -> TrainerSpec:
    """The trainer of a trial, its `run`-th one, which trains until the trial has had `samples` samples. Its
    folder for files of its own stands beside that of its checkpoints."""
    values = values_of(spec, number, params)
    return replace(
        spec.trainer,
        name=f"{spec.name}.{number}.{run}",
        command=command_of(spec.trainer.command, values),
        env=tuple((key, _filled(text, values)) for key, text in spec.trainer.env if not _lacks(text, values)),
        samples=samples,
        checkpoint_dir=checkpoint_dir,
        folder=f"{checkpoint_dir}-files" if checkpoint_dir and spec.own_folders else "",
    )


def values_of(spec: StudySpec, number: int, params: Params) -> dict[str, Value]:
    """Return the values of names in braces in a trial."""
    own = dict(params)
    return {**own, "trial": number, "seed": seed_of(spec.seed, number), "params": json.dumps(own)}


def command_of(words: tuple[str, ...], values: Mapping[str, Value]) -> tuple[str, ...]:
    """The words with values in place of names in braces.

    A word that names a parameter without a value is left out; if it consists of nothing else, so is an option
    such as `--momentum` before it.
    """
    found: list[str] = []
    for word in words:
        if not _lacks(word, values):
            found.append(_filled(word, values))
        elif re.fullmatch(NAMED, word) and found and found[-1].startswith("-"):
            found.pop()
    return tuple(found)


def as_word(value: Value) -> str:
    """A value as a word of a command: true and false in lower case, numbers with all their digits."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _lacks(text: str, values: Mapping[str, Value]) -> bool:
    return any(name not in values for name in re.findall(NAMED, text))


def _filled(text: str, values: Mapping[str, Value]) -> str:
    return re.sub(NAMED, lambda found: as_word(values[found[1]]), text)
