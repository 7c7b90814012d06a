"""Words for the errors of a spec: pydantic's, with line, place, value and remedy."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from bftrainer.messages.specs import WRONG_KEY
from bftrainer.model.text import cut, shown
from bftrainer.spec.located_yaml import Document
from bftrainer.spec.schema import Spec
from bftrainer.yaml_files import QUOTED, Location

MOST_ERRORS = 20
"""Errors of a spec that are told, at most."""
MOST_CHARACTERS = 400
"""Characters of one error, at most."""


PLAIN_FORMS = {"work": "literal['until_exit']", "partial": "bool"}
"""Keys that are a plain value or a mapping, and what pydantic calls the plain form."""


def _other_form(error: ErrorDetails, data: dict[str, Any]) -> bool:
    """Return whether an error is about the form of a key that the user did not choose: pydantic tries both,
    and reports errors of both."""
    loc = error["loc"]
    if len(loc) < 2 or loc[0] not in PLAIN_FORMS:
        return False
    key = str(loc[0])
    return (loc[1] == PLAIN_FORMS[key]) is isinstance(data.get(key), dict)


def explain(
    document: Document,
    where: Location,
    error: ValidationError,
    data: dict[str, Any],
    model: type[BaseModel] = Spec,
) -> str:
    """Return the errors of the spec `data` of a `model`, a line each in the order of lines: `file:line:
    where: value: what; remedy`. After the first `MOST_ERRORS` only the number of the others follows.

    `where` is the place of the spec in its document: `()`, or its index in a list of specs.
    """
    found = [e for e in error.errors(include_url=False, include_context=False) if not _other_form(e, data)]
    found.sort(key=lambda e: document.line((*where, *_place(e))))
    texts = []
    for one in found[:MOST_ERRORS]:
        line = document.line((*where, *_place(one)))
        texts.append(f"{document.name}:{line}: {WRONG_KEY.ends(shown(_text(one, model))[:MOST_CHARACTERS])}")
    if len(found) > MOST_ERRORS:
        texts.append(f"{document.name}: ... and {len(found) - MOST_ERRORS:,} more; mend these first")
    return "\n".join(texts)


def _place(error: ErrorDetails) -> Location:
    """Return an error's place in its spec."""
    loc = error["loc"]
    return loc[:1] + loc[2:] if loc and loc[0] in PLAIN_FORMS else loc  # the second names the form tried


def _text(error: ErrorDetails, model: type[BaseModel]) -> str:
    loc = _place(error)
    place = ".".join(str(part) for part in loc)
    value = error["input"]
    shown_value = "" if isinstance(value, dict | list) else f"{cut(repr(value), QUOTED)}: "
    kind, message = error["type"], error["msg"]
    if kind == "model_type":
        return (
            f"{place}: {shown_value}expected further keys: {', '.join(_valid_keys(loc, model))}{_form(loc)}"
        )
    if kind == "extra_forbidden":
        key = str(loc[-1])
        valid = _valid_keys(loc[:-1], model)
        near = difflib.get_close_matches(key[:QUOTED], valid, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"valid keys: {', '.join(valid)}"
        return f"unknown key {cut(place, QUOTED)!r}; {hint}"
    if kind == "missing":
        return f"{place!r} is missing; add it"
    if kind == "value_error":
        text = message.removeprefix("Value error, ")
        return f"{place + ': ' if place else ''}{text}"
    in_point = loc[:1] in (("curve",), ("curves",)) and isinstance(loc[-1], int)
    point = "; each point is [nodes, samples/s]" if in_point else ""
    remedy = {
        "string_type": "; quote it if it is meant as text",
        "int_type": "; give a whole number",
        "dict_type": "; give a list of points for each class" if loc == ("curves",) else "",
        "list_type": "; give a list, such as [python, train.py]" if loc == ("command",) else "; give a list",
        "too_long": point,
        "too_short": point or "; give at least one, such as [1, 2, 4]" if loc[-1:] == ("sizes",) else point,
        "greater_than_equal": "; raise it",
        "greater_than": "; raise it",
        "less_than_equal": "; lower it",
        "less_than": "; lower it",
        "int_from_float": "; give a whole number",
        "float_type": "; give a number in decimal digits",
        "bool_parsing": "; give true or false",
        "bool_type": "; give true or false",
        "literal_error": "; give 'until_exit' or 'samples: N'" if loc == ("work",) else "",
    }.get(kind, "")
    return f"{place}: {shown_value}{_decapitalised(message)}{remedy}"


def _form(loc: Location) -> str:
    return f", such as {loc[0]}: {{min: 1, max: 4}}" if loc in (("nodes",), ("gpus",)) else ""


def _valid_keys(loc: Location, model: Any) -> list[str]:
    for part in loc:
        if not isinstance(part, str) or part not in model.model_fields:  # an index, or a key of a mapping
            continue
        # none: a key of a mapping may be called as a field is, such as a parameter `choice` of a space
        model = next(_models(model.model_fields[part].annotation), model)
    return [field.alias or name for name, field in model.model_fields.items()]


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models that an annotation names, however deep."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models(inner)


def _decapitalised(message: str) -> str:
    return message[:1].lower() + message[1:]
