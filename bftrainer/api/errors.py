"""Turns errors into HTTP answers: a status code and a JSON object with the message."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web

from bftrainer.api.callers import NotAllowedError, UnauthenticatedError
from bftrainer.api.munge import SCHEME
from bftrainer.api.transport.admission import RETRY_S, BusyError
from bftrainer.api.transport.connection import too_large
from bftrainer.errors import BftrainerError, NameTakenError, StoreError, UnstorableError


class UnknownTrainerError(BftrainerError, LookupError):
    """The caller can see no trainer of this name or number; so also for other users' trainers."""


class TooManyError(BftrainerError):
    """The caller has as much as it may have at a time. Nothing was done."""


class FullError(BftrainerError):
    """All users together have as much as the daemon takes at a time. Nothing was done."""


class LateError(BftrainerError):
    """A part that an answer needs, such as the store, is not available in time."""


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
STATUS_OF: tuple[tuple[type[BftrainerError], int], ...] = (
    (UnauthenticatedError, 401),
    (NotAllowedError, 403),
    (UnknownTrainerError, 404),
    (LateError, 503),
    (NameTakenError, 400),
    (UnstorableError, 400),
    (StoreError, 503),
    (TooManyError, 429),
    (FullError, 503),
    (BftrainerError, 400),
)
"""The first kind that an error is of gives the status code."""


@web.middleware
async def errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer a request with its handler, or with the error that the handler raised."""
    try:
        return await handler(request)
    except BusyError as error:
        return web.json_response(
            {"error": str(error)}, status=error.status, headers={"Retry-After": str(RETRY_S)}
        )
    except BftrainerError as error:
        status = next(code for kind, code in STATUS_OF if isinstance(error, kind))
        headers = {"WWW-Authenticate": SCHEME} if status == 401 else {}
        return web.json_response({"error": str(error)}, status=status, headers=headers)
    except web.HTTPRequestEntityTooLarge:
        return web.json_response({"error": too_large(request)}, status=413)
    except web.RequestPayloadError as error:
        return web.json_response({"error": f"the request's body cannot be read: {error}"}, status=400)
    except web.HTTPException as error:  # no such route, or not with this method
        return _refusal(request, error)


def _refusal(request: web.Request, error: web.HTTPException) -> web.Response:
    """The answer to a request that aiohttp refuses: no such route, or not with this method."""
    said = f"{request.method} {request.path}: {error.reason}"
    headers = {key: value for key, value in error.headers.items() if key == "Allow"}
    return web.json_response({"error": said}, status=error.status, headers=headers)
