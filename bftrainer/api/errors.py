"""The HTTP server: JSON in and out, every answer from one call of the service."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web

from bftrainer.api.callers import SCHEME, NotAllowedError, StrangerError
from bftrainer.errors import BftrainerError

MAX_BODY = 1024 * 1024


class UnknownTrainerError(BftrainerError, LookupError):
    """The caller has no trainer of this name or number; whether somebody else has is not told."""


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


STATUS_OF: tuple[tuple[type[BftrainerError], int], ...] = (
    (StrangerError, 401),
    (NotAllowedError, 403),
    (UnknownTrainerError, 404),
    (BftrainerError, 400),
)


@web.middleware
async def errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except BftrainerError as error:
        status = next(code for kind, code in STATUS_OF if isinstance(error, kind))
        headers = {"WWW-Authenticate": SCHEME} if status == 401 else {}
        return web.json_response({"error": str(error)}, status=status, headers=headers)
    except web.HTTPRequestEntityTooLarge:
        said = f"the request is too large; at most {MAX_BODY} bytes"
        return web.json_response({"error": said}, status=413)
    except web.HTTPException as error:  # no such route, or not with this method
        said = f"{request.method} {request.path}: {error.reason}"
        return web.json_response({"error": said}, status=error.status, headers=allowed(error))


def allowed(error: web.HTTPException) -> dict[str, str]:
    return {key: value for key, value in error.headers.items() if key == "Allow"}
