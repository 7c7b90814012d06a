"""What is wrong with a spec, in words: pydantic's errors with line, place, value and remedy."""

from __future__ import annotations

import difflib
from typing import Any, get_args

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from bftrainer.spec.located_yaml import Document, Location
from bftrainer.spec.schema import Spec


def other_form(error: ErrorDetails, data: dict[str, Any]) -> bool:
    """Whether an error is about the form of `work` that the user did not choose.

    `work` is a word or a mapping; pydantic tries both and reports errors of both.
    """
    if error["loc"][:1] != ("work",):
        return False
    return (error["type"] == "literal_error") is isinstance(data.get("work"), dict)


def explain(document: Document, where: Location, error: ErrorDetails) -> tuple[int, str]:
    """The line of an error, and the whole message: `file:line: where: value: what; remedy`.

    `where` is the place of the spec in its document: `()`, or its index in a list of specs.
    """
    at, text = _line_and_text(document, where, error)
    return at, f"{document.name}:{at}: {text}"


def _line_and_text(document: Document, where: Location, error: ErrorDetails) -> tuple[int, str]:
    loc = error["loc"]
    if loc[:1] == ("work",):  # the second part names which of its forms was tried
        loc = loc[:1] + loc[2:]
    line = document.line((*where, *loc))
    place = ".".join(str(part) for part in loc)
    value = error["input"]
    shown = "" if isinstance(value, dict | list) else f"{value!r}: "
    kind, message = error["type"], error["msg"]
    if kind == "model_type":
        return line, f"{place}: {shown}expected further keys: {', '.join(_valid_keys(loc))}"
    if kind == "extra_forbidden":
        key = str(loc[-1])
        valid = _valid_keys(loc[:-1])
        near = difflib.get_close_matches(key, valid, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"valid keys: {', '.join(valid)}"
        return line, f"unknown key {place!r}; {hint}"
    if kind == "missing":
        return line, f"{place!r} is missing; add it"
    if kind == "value_error":
        text = message.removeprefix("Value error, ")
        return line, f"{place + ': ' if place else ''}{text}"
    remedy = {
        "string_type": "; quote it if it is meant as text",
        "int_type": "; give a whole number, all digits written out",
        "dict_type": "; give a list of points for each class" if loc == ("curves",) else "",
        "list_type": "; give a list, such as [python, train.py]" if loc == ("command",) else "; give a list",
        "too_long": "; each point is [nodes, samples/s]" if loc[:1] in (("curve",), ("curves",)) else "",
        "too_short": "; each point is [nodes, samples/s]" if loc[:1] in (("curve",), ("curves",)) else "",
        "int_from_float": "; give a whole number",
        "float_type": "; give a number",
        "literal_error": "; give 'until_exit' or 'samples: N'" if loc == ("work",) else "",
    }.get(kind, "")
    return line, f"{place}: {shown}{_decapitalised(message)}{remedy}"


def _valid_keys(loc: Location) -> list[str]:
    model: Any = Spec
    for part in loc:
        if not isinstance(part, str):
            continue
        annotation = model.model_fields[part].annotation
        options = [annotation, *get_args(annotation)]
        model = next(o for o in options if isinstance(o, type) and issubclass(o, BaseModel))
    return [field.alias or name for name, field in model.model_fields.items()]


def _decapitalised(message: str) -> str:
    return message[:1].lower() + message[1:]
