"""The definition of a setting: a field of a section, with all facts about it in one `Setting` beside its
type.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Annotated, ClassVar, Literal, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator
from pydantic.fields import FieldInfo

from bftrainer.model.text import plain

Seconds = Annotated[float, Field(ge=0, le=1e7, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, le=1e7, allow_inf_nan=False)]


class SetBy(StrEnum):
    """Those whose configuration decides."""

    USER = "user"
    """Each user: their own commands read it, too."""
    OPERATOR = "operator"
    """The user or account that runs the daemon."""
    SITE = "site admin"
    """The operator of a daemon with `mode: site`; elsewhere it has no effect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The facts of a setting. Its name, type, bounds and default belong to the field itself.

    The options of the command line, the words for None, what SIGHUP takes over, and docs/settings.md are
    derived from these.
    """

    help: str
    """The meaning: a phrase without a full stop, for the command line and the documentation."""
    more: str = ""
    """Sentences (Markdown) that only the documentation adds."""
    choices: tuple[str, ...] = ()
    """The possible values of a text, where the type does not list them."""
    unit: str = ""
    """`s`, `nodes`, ...; empty where values are no amounts."""
    live: bool = False
    """A running daemon takes it over on SIGHUP; other settings need a restart."""
    set_by: SetBy = SetBy.OPERATOR
    commands: tuple[str, ...] = ()
    """The commands that have an option for it."""
    none_word: str = ""
    """The users' word for None; empty where None is no value."""
    default_words: str = ""
    """The default in words, where it differs between machines."""
    at_bound: str = ""
    """For a limit: the effect of reaching it, as a clause in docs/settings.md."""
    told: str = ""
    """For a limit: who is told what, as a clause."""


class Section(BaseModel):
    """Base of all sections. The class's docstring introduces its section in docs/settings.md."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    title: ClassVar[str] = ""

    @field_validator("*", mode="before")
    @classmethod
    def _path_has_a_name(cls, value: object, info: ValidationInfo) -> object:
        annotation = cls.model_fields[str(info.field_name)].annotation
        if isinstance(value, str | Path) and Path in (annotation, *get_args(annotation)):
            if not str(value):
                raise ValueError("empty; name a path")
            plain(str(value))
        return value

    @field_validator("*", mode="before")
    @classmethod
    def _none_from_its_word(cls, value: object, info: ValidationInfo) -> object:
        word = facts(cls)[str(info.field_name)].none_word
        return None if word and value == word else value


@cache
def facts(section: type[Section]) -> Mapping[str, Setting]:
    """The facts of every setting of a section (or of `Settings`, which has them all), by name.

    Raises:
        TypeError: a field without a `Setting`.
    """
    found = {}
    for name, field in section.model_fields.items():
        own = [fact for fact in field.metadata if isinstance(fact, Setting)]
        if len(own) != 1:
            raise TypeError(f"{section.__name__}.{name} has {len(own)} Settings in its type; give it one")
        found[name] = own[0]
    return found


def choices_of(field: FieldInfo, setting: Setting) -> tuple[str, ...]:
    """The possible values of a setting, if there are only some; else nothing."""
    listed = get_args(field.annotation) if get_origin(field.annotation) is Literal else ()
    return setting.choices or tuple(str(choice) for choice in listed)
