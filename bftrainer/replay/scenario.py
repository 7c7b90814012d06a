"""The description of one replay, frozen and validated, from the command line or from a YAML file.

Its parameters are its own fields, the settings by which the engine decides (`Settings`) and the options
of log readers (`LogOptions`), all under one flat set of names. A field that is added to one of these is a
parameter without further work.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError

from bftrainer.errors import BftrainerError
from bftrainer.messages.commands.lines import NO_TIME
from bftrainer.messages.files.tables import UNKNOWN_NAME, WRONG_VALUE
from bftrainer.replay.workload import Changes
from bftrainer.settings.client.given import SettingsError
from bftrainer.settings.setting import Seconds
from bftrainer.settings.values import NO_VALUE, Settings, of_command
from bftrainer.traces.formats.options import FITS, SHARES
from bftrainer.traces.logs import FORMATS, LogOptions


class ScenarioError(BftrainerError, ValueError):
    """An unknown parameter or an impossible value. The message names it, its value and what to do."""


def _moment(value: object) -> object:
    """Unix seconds from a date or time as YAML or JSON read it; UTC unless it names a zone."""
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day, tzinfo=UTC)
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    if isinstance(value, datetime):
        try:
            return (value if value.tzinfo else value.replace(tzinfo=UTC)).astimezone(UTC).timestamp()
        except OverflowError:
            raise ValueError(NO_TIME.say(given=str(value))) from None
    return value


Count = Annotated[int, Field(ge=1, le=10**9)]
Moment = Annotated[float, BeforeValidator(_moment), Field(allow_inf_nan=False)]
Hours = Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)]


class Scenario(BaseModel):
    """One replay. `settings` and `reading` aside, every field is a parameter of the same name."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    log: Annotated[Path, Field(description="log of idle nodes, or of a scheduler's jobs")]
    workload: Annotated[Path, Field(description="job table (CSV) or list of trainer specs (YAML)")]
    curves: Annotated[Path | None, Field(description="scalability curves of a job table's models")] = None
    profiles: Annotated[
        Path | None, Field(description="measurements of the programs of a workload whose batches adapt")
    ] = None
    model: Annotated[str | None, Field(description="all of a job table's trainers train this model")] = None
    nodes: Annotated[Count | None, Field(description="take so many nodes of the log's; none: all")] = None
    pick: Annotated[
        Annotated[int, Field(ge=0, le=2**63 - 1)] | None,
        Field(description="seed by which these nodes are chosen at random; none: the first by name"),
    ] = None
    begin: Annotated[Moment | None, Field(description="where to begin, UTC; none: where the log does")] = None
    hours: Annotated[Hours | None, Field(description="how long; none: to the log's end")] = None
    jobs: Annotated[Count | None, Field(description="only the first so many trainers")] = None
    cost_scale: Annotated[
        float, Field(ge=0, le=1e6, allow_inf_nan=False, description="all rescale costs times this")
    ] = 1.0
    stall_up_s: Annotated[
        Seconds | None, Field(description="all members stand still so long when nodes join")
    ] = None
    stall_down_s: Annotated[
        Seconds | None, Field(description="all members stand still so long when nodes leave")
    ] = None
    init_s: Annotated[
        Seconds | None, Field(description="new nodes initialise so long while the members train on")
    ] = None
    knowledge: Annotated[
        Literal["all", "none"],
        Field(description="whether decisions know curves and costs, or have to learn them"),
    ] = "all"
    noise: Annotated[
        float, Field(ge=0, le=10, allow_inf_nan=False, description="relative spread of measured speeds")
    ] = 0.0
    seed: Annotated[Annotated[int, Field(ge=0, le=2**63 - 1)], Field(description="of this noise")] = 0
    jct_first: Annotated[
        Count | None, Field(description="mean runtime and turnaround over the first so many trainers")
    ] = None
    settings: Settings = Field(default_factory=Settings)
    reading: LogOptions = LogOptions()

    @property
    def changes(self) -> Changes:
        """Changes of the scenario to its workload."""
        return Changes(**{field.name: getattr(self, field.name) for field in fields(Changes)})

    @property
    def parameters(self) -> dict[str, Any]:
        """Every parameter by its name, as JSON has it. `of` turns these into the same scenario again."""
        return (
            self.model_dump(mode="json", include=set(OWN))
            | {name: value for name, value in asdict(self.reading).items() if name in READING}
            | self.settings.model_dump(mode="json", include=set(ENGINE))
        )


OWN = tuple(name for name in Scenario.model_fields if name not in ("settings", "reading"))
READING = tuple(field.name for field in fields(LogOptions))
ENGINE = of_command("replay")
"""The settings that matter to a replay."""
BOUNDS = {
    "machine_nodes": (1, 1_000_000),
    "cores_per_node": (1, 1_000_000),
    "min_gap_s": (0, 10_000_000),
    "max_broken": (0, 1),
    "gpus_per_node": (1, 1024),
}
PARAMETERS = (*OWN, *READING, *ENGINE)


def of(values: Mapping[str, Any], base: Settings | None = None, source: str = "scenario") -> Scenario:
    """The scenario with these parameters; those that are None or missing have their defaults.

    `base` has the settings that `values` leaves open. Errors name `source`.

    Raises:
        ScenarioError: an unknown parameter, or an impossible value.
        SettingsError: an impossible setting.
    """
    check(values, source)
    try:
        return Scenario(
            **{name: values[name] for name in OWN if values.get(name) is not None},
            reading=_reading({name: values[name] for name in READING if values.get(name) is not None}),
            settings=Settings.model_validate(
                (base or Settings()).model_dump()
                | {name: values[name] for name in ENGINE if name in values}
                | _shared(values)
            ),
        )
    except (ValidationError, SettingsError) as error:
        raise ScenarioError(f"{source}: {_explained(error)}") from error
    except ScenarioError as error:
        raise ScenarioError(f"{source}: {error}") from None


def _shared(values: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that follow from whether the log is of nodes or of GPUs."""
    share = values.get("share") or "node"
    return {"share": share, "gpus_per_node": values.get("gpus_per_node") or 1 if share == "gpu" else 1}


def _reading(values: Mapping[str, Any]) -> LogOptions:
    """The options of log readers. Raises `ScenarioError` for values out of bounds."""
    options = TypeAdapter(LogOptions).validate_python(values)
    if options.format not in (None, *FORMATS):
        raise ScenarioError(_wrong("format", options.format, f"one of {', '.join(FORMATS)}"))
    for name, choices in (("share", SHARES), ("gpu_jobs", (None, *FITS))):
        if getattr(options, name) not in choices:
            words = ", ".join(filter(None, choices))
            raise ScenarioError(_wrong(name, getattr(options, name), f"one of {words}"))
    for name, (least, most) in BOUNDS.items():
        value = getattr(options, name)
        if value is not None and not least <= value <= most:
            raise ScenarioError(_wrong(name, value, f"a number from {least} to {most:,}"))
    return options


def _wrong(name: str, given: object, wanted: str) -> str:
    return WRONG_VALUE.say(name=f"{name}:", given=repr(given), wanted=wanted)


def check(names: Iterable[str], source: str) -> None:
    """Make sure that all names are parameters.

    Raises:
        ScenarioError: one is unknown; the message suggests the most similar known one.
    """
    for name in names:
        if name not in PARAMETERS:
            near = difflib.get_close_matches(str(name).lower(), PARAMETERS, n=1, cutoff=0.5)
            known = repr(near[0]) if near else f"one of {', '.join(sorted(PARAMETERS))}"
            said = UNKNOWN_NAME.say(kind="parameter", name=repr(name), known=known)
            raise ScenarioError(f"{source}: {said}")


def in_words(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The same parameters, with a word for settings that are left open (`auto`, `never`)."""
    return {name: NO_VALUE.get(name) if value is None else value for name, value in parameters.items()}


def _explained(error: ValidationError | SettingsError) -> str:
    """One line for all that is wrong: parameter, value, reason."""
    if not isinstance(error, ValidationError):
        return str(error)
    found = []
    for e in error.errors():
        name = str(e["loc"][0]) if e["loc"] else "settings"
        if e["type"] == "missing":
            found.append(f"{name} is missing")
        else:
            message = e["msg"].removeprefix("Value error, ")
            found.append(f"{name}: {e['input']!r}: {message[:1].lower()}{message[1:]}")
    return "; ".join(found)
