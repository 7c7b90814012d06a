"""Reads and checks the bodies, texts and numbers of requests."""

from __future__ import annotations

import json
from typing import Any

from aiohttp import web

from bftrainer.errors import BftrainerError
from bftrainer.messages.commands.reaching import ODD_REQUEST
from bftrainer.wire.parse import MAX_DEPTH, is_shallow

MAX_DIGITS = 20
"""A text of more digits is no number that anybody means; to read it would take long."""
MOST_REAL = 1e300


def odd_request(why: str) -> BftrainerError:
    """An error of who has sent a request."""
    return BftrainerError(ODD_REQUEST.ends(why))


async def body_of(request: web.Request) -> dict[str, Any]:
    """Read a JSON object from a request; raise `BftrainerError` if there is none."""
    try:
        body = json.loads(await request.read())
        shallow = is_shallow(body)
    except RecursionError:
        shallow = False
    except ValueError as error:
        raise odd_request(f"the request's body is no JSON: {error}") from error
    if not shallow:
        raise odd_request(f"the request's body is nested too deeply: more than {MAX_DEPTH} deep")
    if not isinstance(body, dict):
        raise odd_request("the request's body must be a JSON object")
    return body


def text_of(body: dict[str, Any], key: str) -> str:
    """Return the text of a key; raise `BftrainerError` if it is missing or no text."""
    value = body.get(key)
    try:
        if isinstance(value, str) and b"\0" not in value.encode():
            return value
    except UnicodeEncodeError:  # half a character, which neither a file system nor the store takes
        pass
    raise odd_request(f"{key!r} must be a text")


def real_of(body: dict[str, Any], key: str) -> float:
    """Return the number of a key; raise `BftrainerError` if it is missing or no finite number."""
    value = body.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < MOST_REAL:
        raise odd_request(f"{key!r} must be a number")
    return float(value)


def number_of(request: web.Request, key: str, default: int, least: int, most: int) -> int:
    """Return a number of the query; raise `BftrainerError` if it is out of bounds."""
    text = request.query.get(key, str(default))
    if not (text.isascii() and text.isdecimal() and len(text) < MAX_DIGITS and least <= int(text) <= most):
        raise odd_request(f"{key}={text[:MAX_DIGITS]!a}: give a whole number from {least} to {most}")
    return int(text)
