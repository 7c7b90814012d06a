"""Reads trainer specs: from YAML in a file or text to validated `TrainerSpec`s."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError

from bftrainer.files import read_text
from bftrainer.messages.files.places import UNREADABLE
from bftrainer.messages.files.tables import SECOND
from bftrainer.messages.specs import IS_STUDY, NO_SCRIPT, NO_SPEC, NO_WORKDIR
from bftrainer.model.trainer import Cost, RescaleCosts, Scalability, TrainerSpec
from bftrainer.performance import curve
from bftrainer.spec.command_line import script_of
from bftrainer.spec.explain import explain
from bftrainer.spec.located_yaml import SPEC, SPECS, Document, SpecError, YamlLimits, compose
from bftrainer.spec.schema import Rescale, Spec, Work
from bftrainer.yaml_files import QUOTED, Location

WORDS = ("command", "env")
"""Keys whose values are texts, also where they look like numbers: `--lr, 1e-3`, `OMP_NUM_THREADS: 4`."""


def read(path: Path, bounds: YamlLimits = SPEC) -> str:
    """The text of a file with a spec. What is no file is not waited for, and no more is read than a spec has.

    Raises:
        SpecError: the file is unreadable, not a regular one, or too large.
    """
    try:
        return read_text(path, bounds.kb)
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(UNREADABLE.say(path=path, why=error)) from error


def check_files(spec: TrainerSpec, text: str, path: Path) -> None:
    """Check that the workdir of a spec, from the `text` of the file `path`, is a folder that this user sees,
    and that the script is there. A script in a folder that is not here may be on the nodes.

    The user's own command checks it: a daemon that serves many users does not open their files.

    Raises:
        SpecError: one is not there, with the line of `workdir` or `command`.
    """

    def at(key: str) -> str:
        lines = enumerate(text.splitlines(), start=1)
        found = (n for n, words in lines if words.lstrip(" {\"'-").startswith(key))
        return f"{path}:{next(found, 1)}: {key}"

    if not os.path.isdir(spec.workdir):  # noqa: PTH112  Path.is_dir raises for a name that no file can have
        raise SpecError(f"{at('workdir')}: {NO_WORKDIR.say(folder=spec.workdir)}")
    script = Path(spec.workdir, script_of(spec.command))
    if os.path.isdir(script.parent) and not os.path.exists(script):  # noqa: PTH112, PTH110
        found = NO_SCRIPT.say(script=script.name, folder=str(script.parent))
        raise SpecError(f"{at('command')}: {found}")


def parse(text: str, name: str, base: Path, bounds: YamlLimits = SPEC) -> TrainerSpec:
    """One spec from its YAML text. `name` is its file's, for messages; relative paths start at `base`.

    Raises:
        SpecError: not a valid spec.
    """
    document = compose(text, name, bounds)
    return convert(document, (), base)


def parse_many(text: str, name: str) -> list[TrainerSpec]:
    """A YAML list of specs, for replays.

    Raises:
        SpecError: no list, an invalid spec, or a name that occurs twice.
    """
    document = compose(text, name, SPECS)
    if not isinstance(document.value, list):
        said = NO_SPEC.say(given=name, kind="list of specs", begin="each with '- name: ...'")
        raise SpecError(f"{name}:1: {said}")
    specs = [convert(document, (i,), Path()) for i in range(len(document.value))]
    seen: set[str] = set()
    for i, spec in enumerate(specs):
        if spec.name in seen:
            raise SpecError(f"{name}:{document.line((i,))}: {SECOND.say(what='spec', name=spec.name)}")
        seen.add(spec.name)
    return specs


def convert(
    document: Document, where: Location, base: Path, added: Mapping[str, Any] = MappingProxyType({})
) -> TrainerSpec:
    """The spec at one place of a document, with keys `added` that it does not have.

    Raises:
        SpecError: not a valid spec.
    """
    data = document.at(where)
    if not isinstance(data, dict):
        said = NO_SPEC.say(given=repr(data)[:QUOTED], kind="spec", begin="with 'name: ...'")
        raise SpecError(f"{document.name}:{document.line(where)}: {said}")
    if {"trainer", "space"} <= data.keys() and "command" not in data:
        raise SpecError(f"{document.name}:1: {IS_STUDY.say()}")
    data = {**added, **data}
    data |= {key: document.as_written((*where, key), data[key]) for key in WORDS if key in data}
    try:
        spec = Spec.model_validate(data)
    except ValidationError as error:
        raise SpecError(explain(document, where, error, data)) from error
    return TrainerSpec(
        name=spec.name,
        command=tuple(spec.command),
        n_min=spec.sizes.least,
        n_max=spec.sizes.most,
        sizes=spec.sizes.allowed(),
        workers=spec.workers(),
        launcher=spec.launcher,
        samples=spec.work.samples if isinstance(spec.work, Work) else None,
        progress=spec.work.progress if isinstance(spec.work, Work) else None,
        curve=spec.points(),
        costs=_costs(spec.rescale),
        scalability=Scalability(spec.scalability),
        curves=tuple(
            (name, curve.make((int(n), rate) for n, rate in pairs) if pairs else ())
            for name, pairs in sorted(spec.curves.items())
        ),
        weight=spec.weight,
        priority=spec.priority,
        workdir=_absolute(base, spec.workdir),
        env=tuple(sorted(spec.env.items())),
        checkpoint_dir=_absolute(base, spec.checkpoint.dir) if spec.checkpoint.dir else "",
        checkpoint_every_s=spec.checkpoint.every_s,
        checkpoint_interval_s=spec.checkpoint.interval_s or 0.0,
        batch=spec.batch.items() if spec.batch else (),
        partial=spec.parts(),
        stop_signal=spec.stop_signal or "",
        gpus=spec.gpus is not None,
        across=spec.points_across(),
        takes_turns=spec.share == "time",
        memory=round((spec.memory_gb or 0.0) * 1e9),
    )


def _absolute(base: Path, path: str) -> str:
    """The absolute path, links unresolved: the user's own processes follow them."""
    return os.path.abspath(base / path)  # noqa: PTH100  Path.resolve would follow links


def _costs(rescale: Rescale | None) -> RescaleCosts | None:
    if rescale is None:
        return None
    return RescaleCosts(
        up=Cost(stall_s=rescale.up.stall_s, init_s=rescale.up.init_s), down=Cost(stall_s=rescale.down.stall_s)
    )
