"""Reads trainer specs: from YAML in a file or text to validated `TrainerSpec`s."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError

from bftrainer.files import read_text
from bftrainer.model.trainer import Cost, RescaleCosts, Scalability, TrainerSpec
from bftrainer.performance import curve
from bftrainer.spec.explain import explain
from bftrainer.spec.located_yaml import QUOTED, SPEC, SPECS, Bounds, Document, Location, SpecError, compose
from bftrainer.spec.schema import Rescale, Spec, Work


def read(path: Path, bounds: Bounds = SPEC) -> str:
    """The text of a file with a spec. What is no file is not waited for, and no more is read than a spec has.

    Raises:
        SpecError: the file is unreadable, not a regular one, or too large.
    """
    try:
        return read_text(path, bounds.kb)
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"{path}: {error}") from error


def require_workdir(spec: TrainerSpec, text: str, path: Path) -> None:
    """Check that the workdir of a spec, from the `text` of the file `path`, is a folder that this user sees.

    The user's own command checks it: a daemon that serves many users opens no files of theirs.

    Raises:
        SpecError: it is not, with the line of `workdir`.
    """
    if not _is_folder(spec.workdir):
        lines = enumerate(text.splitlines(), start=1)
        line = next((n for n, words in lines if words.lstrip().startswith("workdir")), 1)
        raise SpecError(f"{path}:{line}: workdir: no folder {spec.workdir!r}; make it or name another")


def _is_folder(path: str) -> bool:
    try:
        return Path(path).is_dir()
    except OSError:  # a name that no file system takes
        return False


def parse(text: str, name: str, base: Path, bounds: Bounds = SPEC) -> TrainerSpec:
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
        raise SpecError(f"{name}:1: expected a list of specs; begin each with '- name: ...'")
    specs = [convert(document, (i,), Path()) for i in range(len(document.value))]
    seen: set[str] = set()
    for i, spec in enumerate(specs):
        if spec.name in seen:
            raise SpecError(f"{name}:{document.line((i,))}: the name {spec.name!r} occurs twice; rename one")
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
        said = repr(data)[:QUOTED]
        raise SpecError(f"{document.name}:{document.line(where)}: {said} is no spec; expected 'name: ...'")
    data = {**added, **data}
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
        stop_signal=spec.stop_signal or "",
        gpus=spec.gpus is not None,
        across=spec.points_across(),
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
