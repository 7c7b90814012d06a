"""One typed, frozen Settings object: command line > environment > file > default.

Environment variables are `BFTRAINER_<NAME>`, the file is YAML with the names below, by default
`$XDG_CONFIG_HOME/bftrainer/config.yaml`. An unknown name is an error that names the nearest valid one.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from bftrainer.errors import BftrainerError
from bftrainer.model import EngineSettings

PREFIX = "BFTRAINER_"
FOR_WORKERS = frozenset({"BFTRAINER_WORKER"})
"""Variables with our prefix that are no settings: what an agent tells its workers."""

Seconds = Annotated[float, Field(ge=0, le=1e7, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, le=1e7, allow_inf_nan=False)]


class SettingsError(BftrainerError, ValueError):
    """A setting that does not exist or cannot be. The message says where it came from."""


def default_state_dir() -> Path:
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "bftrainer"


class Settings(BaseModel):
    """Everything that a site or user can set."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    state_dir: Annotated[Path, Field(description="store, socket and logs")] = Field(
        default_factory=default_state_dir
    )
    allocator: Annotated[Literal["auto", "milp", "knapsack", "equal"], Field(description="who decides")] = (
        "auto"
    )
    objective: Annotated[
        Literal["throughput", "efficiency"],
        Field(description="what is maximised: samples/s, or samples/s relative to one node"),
    ] = "throughput"
    t_fwd_s: Annotated[Positive, Field(description="time for which nobody is assumed to leave")] = 120.0
    max_parallel: Annotated[int, Field(ge=1, le=100_000, description="trainers that may hold nodes")] = 10
    milp_time_limit_s: Annotated[Positive, Field(description="time limit of the MILP solver")] = 10.0
    max_failures: Annotated[
        int, Field(ge=0, le=1000, description="failures of a program in a row, without progress, to bear")
    ] = 3
    poll_s: Annotated[Positive, Field(description="time between two looks at the scheduler")] = 0.5
    debounce_s: Annotated[Seconds, Field(description="how long a node must be idle before it joins")] = 0.0
    failed_polls: Annotated[
        int, Field(ge=1, le=1000, description="failed polls in a row before the status says degraded")
    ] = 3
    pilot_start_s: Annotated[Positive, Field(description="how long a pilot may take to report")] = 60.0
    reconnect_s: Annotated[Positive, Field(description="how long an agent may take to connect again")] = 5.0
    orphan_s: Annotated[Positive, Field(description="how long an agent goes on without a daemon")] = 60.0
    stop_grace_s: Annotated[
        Positive, Field(description="time for a worker to checkpoint and leave before it is killed")
    ] = 15.0

    @field_validator("state_dir")
    @classmethod
    def _whole_path(cls, path: Path) -> Path:
        return path.expanduser().absolute()

    @property
    def engine(self) -> EngineSettings:
        return EngineSettings(
            allocator=self.allocator,
            objective=self.objective,
            t_fwd_s=self.t_fwd_s,
            max_parallel=self.max_parallel,
            milp_time_limit_s=self.milp_time_limit_s,
            max_failures=self.max_failures,
        )

    @property
    def socket(self) -> Path:
        return self.state_dir / "daemon.sock"

    @property
    def database(self) -> Path:
        return self.state_dir / "bftrainer.db"


def load(
    overrides: Mapping[str, Any], *, file: Path | None = None, environ: Mapping[str, str] | None = None
) -> Settings:
    """Merge the sources. `overrides` are the command line's; its None values count as not given.

    Raises:
        SettingsError: an unknown name or an impossible value, with its source.
    """
    environ = os.environ if environ is None else environ
    merged: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for source, values in (
        _from_file(file, environ),
        (f"environment {PREFIX}*", _from_environment(environ)),
        ("command line", {k: v for k, v in overrides.items() if v is not None}),
    ):
        for name, value in values.items():
            if name not in Settings.model_fields:
                raise SettingsError(_unknown(source, name))
            merged[name], sources[name] = value, source
    try:
        return Settings.model_validate(merged)
    except ValidationError as error:
        lines = [
            f"{sources.get(str(e['loc'][0]), 'settings')}: {e['loc'][0]}: {e['input']!r}: {e['msg'].lower()}"
            for e in error.errors()
        ]
        raise SettingsError("\n".join(lines)) from error


def _from_file(file: Path | None, environ: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    config = environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    path = file or Path(config) / "bftrainer" / "config.yaml"
    if file is None and not path.exists():
        return str(path), {}
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise SettingsError(f"{path}: {error}") from error
    if values is None:
        return str(path), {}
    if not isinstance(values, dict):
        raise SettingsError(f"{path}: expected lines of 'name: value', got {type(values).__name__}")
    return str(path), {str(name): value for name, value in values.items()}


def _from_environment(environ: Mapping[str, str]) -> dict[str, str]:
    return {
        name.removeprefix(PREFIX).lower(): value
        for name, value in environ.items()
        if name.startswith(PREFIX) and name not in FOR_WORKERS
    }


def _unknown(source: str, name: str) -> str:
    valid = list(Settings.model_fields)
    near = difflib.get_close_matches(name.lower(), valid, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"valid names: {', '.join(valid)}"
    given = f"{PREFIX}{name.upper()}" if source.startswith("environment") else name
    return f"{source}: unknown setting {given!r}; {hint}"
