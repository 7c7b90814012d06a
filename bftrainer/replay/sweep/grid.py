"""The description of a sweep, a YAML file, and the runs that it asks for."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from bftrainer import __version__
from bftrainer.errors import BftrainerError
from bftrainer.messages.files.tables import NO_FILE, NOT_IN_FORM, TOO_MANY, UNKNOWN_NAME
from bftrainer.model.text import shown
from bftrainer.replay import scenario
from bftrainer.replay.inputs import stamp
from bftrainer.replay.scenario import Scenario
from bftrainer.settings.values import Settings
from bftrainer.yaml_files import YamlFileError, read_yaml

MOST_KB = 1000
MOST_RUNS = 100_000
"""A sweep has no more; a short file can describe any number."""
REPORT_EVERY = 100
LONGEST_PATH = 1000  # characters of a path to quote
QUOTED = 80
"""Characters of a value to quote."""
FILES = ("log", "workload", "curves", "profiles")
FOLDERS = ("profiles",)
"""Those of them that are folders."""
PARTS = ("base", "grid", "runs")
Values = dict[str, Any]
"""Parameters of a scenario by name."""


class SweepError(BftrainerError, ValueError):
    """A sweep that cannot be read or run. The message names file, value and what to do."""


@dataclass(frozen=True, slots=True)
class SweepRun:
    """One run of a sweep.

    `key` tells it from all others; `name` and `differs` have the parameters in which it differs from the
    sweep's base.
    """

    key: str
    name: str
    scenario: Scenario
    differs: Mapping[str, str]


def read(
    path: Path,
    settings: Settings | None = None,
    files: Path | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[SweepRun]:
    """The runs that a YAML file describes, each once.

    `base` has parameters (see `scenario`) of all runs; `grid` has lists of values, and every combination
    of these is a run; `runs` lists further runs by what differs from the base. Paths of files begin in
    the folder `files`, or beside the YAML file. `settings` hold for what the file leaves open.
    `progress` takes how many are read, and of how many.

    Raises:
        SweepError, ScenarioError: unreadable, not such a description, too many runs, or a file in it does not
            exist.
    """
    try:
        plain = read_yaml(path, MOST_KB)
    except YamlFileError as error:
        raise SweepError(str(error)) from error
    base, grid, runs = _parts(plain, path)
    asked = math.prod(map(len, grid.values())) + len(runs)
    if asked > MOST_RUNS:
        sizes = " x ".join(f"{len(values):,} {name}" for name, values in grid.items())
        what = f"runs ({sizes}; {len(runs):,} in runs)"
        raise SweepError(f"{path}: {TOO_MANY.say(count=asked, what=what, most=MOST_RUNS)}")
    points = [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]
    chosen = [*(points if grid or not runs else []), *runs]
    found: dict[str, SweepRun] = {}
    for number, overrides in enumerate(chosen):
        if number % REPORT_EVERY == 0:
            progress(number, len(chosen))
        run = _run(path, base, overrides, settings, files or path.parent)
        found.setdefault(run.key, run)
    return list(found.values())


def _run(path: Path, base: Values, overrides: Values, settings: Settings | None, folder: Path) -> SweepRun:
    """The run with the parameters of `base` but for those of `overrides`; paths begin in `folder`."""
    values = {**base, **overrides}
    for name in FILES:
        if isinstance(values.get(name), str):
            values[name] = (folder / values[name]).absolute()
    differs = {name: _short(value) for name, value in overrides.items()}
    label = ", ".join(f"{name}={value}" for name, value in differs.items())
    what = scenario.of(values, settings, f"{path}: {label}" if label else str(path))
    for name in FILES:
        file = getattr(what, name)
        if file is not None and not _is_there(file, folder=name in FOLDERS):
            kind = "folder" if name in FOLDERS else "file"
            which = f"a path that begins in {folder}"
            said = NO_FILE.say(what=str(file)[:LONGEST_PATH], kind=kind, which=which)
            raise SweepError(f"{path}: {name}: {said}")
    return SweepRun(_key(what), label or path.stem, what, differs)


def _parts(plain: object, path: Path) -> tuple[Values, dict[str, list[Any]], list[Values]]:
    """The parts base, grid and runs of a description, checked but for the values."""
    if not isinstance(plain, dict):
        form = f"mapping with the parts {', '.join(PARTS)}"
        raise SweepError(f"{path}: {NOT_IN_FORM.say(part=type(plain).__name__, form=form)}")
    for part in plain:
        if part not in PARTS:
            known = f"one of {', '.join(PARTS)}"
            said = UNKNOWN_NAME.say(kind="part", name=repr(part)[:QUOTED], known=known)
            raise SweepError(f"{path}: {said}")
    base, grid, runs = plain.get("base") or {}, plain.get("grid") or {}, plain.get("runs") or []
    if not isinstance(base, dict) or not isinstance(grid, dict):
        said = NOT_IN_FORM.say(part="base or grid", form="mapping, lines of 'parameter: value'")
        raise SweepError(f"{path}: {said}")
    if not isinstance(runs, list) or not all(isinstance(run, dict) for run in runs):
        said = NOT_IN_FORM.say(part="runs", form="list of mappings, each lines of 'parameter: value'")
        raise SweepError(f"{path}: {said}")
    for where, names in (("base", base), ("grid", grid), *(("runs", run) for run in runs)):
        scenario.check(names, f"{path}: {where}")
    for name, values in grid.items():
        if not isinstance(values, list) or not values:
            said = NOT_IN_FORM.say(part=repr(values)[:QUOTED], form="list of values such as [1, 2]")
            raise SweepError(f"{path}: grid: {name}: {said}")
    return base, grid, runs


def _short(value: object) -> str:
    return shown(value.name if isinstance(value, Path) else str(value))[:QUOTED]


def _is_there(path: Path, *, folder: bool) -> bool:
    try:
        return path.is_dir() if folder else path.is_file()
    except (OSError, ValueError):  # a name that no file system takes
        return False


def _key(what: Scenario) -> str:
    """The same for the same parameters of the same files with the same version."""
    stamps = [
        stamp(path) if path is not None and path.exists() else None
        for path in (what.log, what.workload, what.curves, what.profiles)
    ]
    plain = json.dumps([what.parameters, stamps, __version__], sort_keys=True)
    return hashlib.sha256(plain.encode()).hexdigest()[:16]
