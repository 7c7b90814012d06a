"""A trial once more, as a trainer of its own: the spec that `bftrainer submit` takes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bftrainer.search.files.parse import parse
from bftrainer.search.files.space import Params
from bftrainer.search.fill import trainer_of
from bftrainer.spec.located_yaml import SPECS, compose

AGAIN = "again"
"""The end of its name. A trial's own trainers have the number of their run there."""


def again(text: str, base: str, number: int, params: Params, samples: int) -> dict[str, Any]:
    """Return the spec of a trainer that runs a trial of a study again, up to `samples` samples.

    `text` is the study file's, `base` the folder that its relative paths start from. The parameters are
    given: samplers that learn choose them from what other trials had shown. It has checkpoints of its own.

    Raises:
        SpecError: not a valid study.
    """
    spec = parse(text, "study", Path(base), SPECS, accepted=True)
    found = compose(text, "study", SPECS).value
    assert isinstance(found, dict)  # noqa: S101  it has been parsed
    template: Mapping[str, Any] = found["trainer"]
    folder = spec.trainer.checkpoint_dir
    own = trainer_of(spec, number, params, run=0, samples=samples, checkpoint_dir=folder or "")
    name = f"{spec.name}.{number}.{AGAIN}"
    filled: dict[str, Any] = {
        "name": name,
        "command": list(own.command),
        "workdir": own.workdir,
        "work": {"samples": own.samples},
        "weight": own.weight,
        "priority": own.priority,
    }
    if own.env:
        filled["env"] = dict(own.env)
    if folder:
        filled["checkpoint"] = {**template["checkpoint"], "dir": str(Path(folder, name))}
    rest = {key: value for key, value in template.items() if key not in ("command", "workdir", "env")}
    return {**rest, **filled}
