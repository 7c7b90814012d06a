"""Lets in whom the page is for: a token that counts once becomes a session, and other sites get nothing.

The session travels in a header that only our page's script sets, never in a cookie: browsers add cookies to
requests of other sites, and to those for other users' servers on other ports of the same machine.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field

from aiohttp import web
from aiohttp.typedefs import Middleware

from bftrainer.errors import BftrainerError
from bftrainer.messages.commands.reaching import PAGE

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
"""Headers of every answer: no script but our files, no frame, no other site."""
SCHEME = "Bearer "
SAME_SITE = frozenset({"same-origin", "none"})
"""A browser's words for requests of our own page, and of an address that its user typed."""


class NotLetInError(BftrainerError):
    """A request that is not let in, with the status of its answer."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(PAGE.ends(message))
        self.status = status


@dataclass(slots=True)
class Access:
    """Decides who may ask. `hosts` are the names under which the page is asked for; `public`: everybody who
    reaches it may look."""

    hosts: Collection[str]
    public: bool = False
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    _session: str = ""

    def redeem(self, token: str) -> str:
        """Return the session for the token; it counts once.

        Raises:
            NotLetInError: it is wrong, or was used before.
        """
        right = hmac.compare_digest(token.encode("utf-8", "replace"), self.token.encode())
        if not right or self._session:
            raise NotLetInError("this link is used or wrong; start bftrainer web again for a new one", 401)
        self._session = secrets.token_urlsafe(32)
        return self._session

    def check_site(self, request: web.Request) -> None:
        """Raise `NotLetInError` for a request that another site's page may have caused."""
        host = request.headers.get("Host", "").lower()
        if host not in self.hosts:  # a name of another site that leads here
            raise NotLetInError("ask for this page by the address that bftrainer web has printed", 421)
        origin, fetched = request.headers.get("Origin"), request.headers.get("Sec-Fetch-Site", "none")
        own = origin is None or origin.lower() in (f"http://{host}", f"https://{host}")
        if not own or fetched not in SAME_SITE:
            raise NotLetInError("other sites' pages get nothing here", 403)

    def check_session(self, request: web.Request) -> None:
        """Raise `NotLetInError` if a request does not come from who has redeemed the token."""
        if self.public:
            return
        given = request.headers.get("Authorization", "").removeprefix(SCHEME)
        known = hmac.compare_digest(given.encode("utf-8", "replace"), self._session.encode())
        if not (known and self._session):
            raise NotLetInError(
                "open the link that bftrainer web has printed; start it again for a new one", 401
            )


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def guard(access: Access) -> Middleware:
    """Return the middleware that lets no other site in, and puts `HEADERS` on every answer."""

    @web.middleware
    async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer a request, or say why not."""
        try:
            access.check_site(request)
            response = await handler(request)
        except BftrainerError as error:
            response = web.json_response({"error": str(error)}, status=getattr(error, "status", 502))
        except web.HTTPException as error:
            response = web.json_response({"error": error.reason}, status=error.status)
        if not response.prepared:
            response.headers.update(HEADERS)
        return response

    return guarded
