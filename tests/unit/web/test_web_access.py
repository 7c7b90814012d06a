"""Who gets what of `bftrainer web`: a token that counts once, our own page only, and the paths of a list."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from yarl import URL

from bftrainer.web.access import HEADERS, Access
from bftrainer.web.pages import files
from bftrainer.web.relay import STREAMS
from bftrainer.web.server import application, hosts_of
from tests.support.serving import serving


class Asked:
    """A daemon's client that notes what it is asked, and answers each question with its path."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.stays = False

    @asynccontextmanager
    async def stream(
        self, method: str, path: str, query: dict[str, str], data: bytes = b""
    ) -> AsyncIterator[Any]:
        self.paths.append(f"{method} {path} {query} {data.decode()}")

        async def pieces(size: int) -> AsyncIterator[bytes]:
            yield path.encode()
            while self.stays:
                await asyncio.sleep(0.01)

        yield SimpleNamespace(
            status=200, headers={"X-Odd": "1"}, content=SimpleNamespace(iter_chunked=pieces)
        )


class Page:
    """The server at a port of loopback, and its answers as (status, JSON or text)."""

    def __init__(self, access: Access, daemon: Asked, port: int, http: aiohttp.ClientSession) -> None:
        self.access, self.daemon, self.port, self._http = access, daemon, port, http
        self.session = ""

    async def ask(
        self, path: str, method: str = "GET", body: object = None, **headers: str
    ) -> tuple[int, Any]:
        own = {"Authorization": f"Bearer {self.session}"} if self.session else {}
        given = own | {name.replace("_", "-"): value for name, value in headers.items()}
        url = URL(f"http://127.0.0.1:{self.port}{path}", encoded=True)
        async with self._http.request(method, url, json=body, headers=given, allow_redirects=False) as answer:
            assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS
            assert "X-Odd" not in answer.headers
            return answer.status, await (answer.json() if answer.status >= 400 else answer.text())

    async def enter(self) -> None:
        _, told = await self.ask("/session", "POST", {"token": self.access.token})
        self.session = told.split('"')[3]


def story(tell: Callable[[Page], Awaitable[None]], *, public: bool = False, record: bytes = b"") -> None:
    """Run a story of questions to a server."""

    async def run() -> None:
        bound = socket.create_server(("127.0.0.1", 0))
        port, daemon = bound.getsockname()[1], Asked()
        access = Access(hosts_of(port, ("web.site.org",)), public=public)
        app = application(access, None if record else daemon, record=record)  # type: ignore[arg-type]
        async with serving(app, bound), aiohttp.ClientSession() as http:
            await asyncio.wait_for(tell(Page(access, daemon, port, http)), 60)

    asyncio.run(run())


def test_the_token_counts_once_and_nothing_is_told_without_a_session() -> None:
    async def tell(page: Page) -> None:
        for path in ("/v1/status", "/v1/feed", "/logs/1", "/about"):
            assert (await page.ask(path))[0] == 401
            assert (await page.ask(path, Authorization="Bearer "))[0] == 401, "nobody has a session yet"
        assert (await page.ask("/session", "POST", {"token": "guess"}))[0] == 401
        assert (await page.ask("/session", "POST", {"token": 5}))[0] == 400, "not the daemon's fault"
        await page.enter()
        assert (await page.ask("/session", "POST", {"token": page.access.token}))[0] == 401
        assert await page.ask("/v1/status") == (200, "status")
        page.session += "x"
        assert (await page.ask("/v1/status"))[0] == 401
        assert page.daemon.paths == ["GET status {} "]

    story(tell)


def test_other_sites_get_nothing() -> None:
    async def tell(page: Page) -> None:
        await page.enter()
        assert (await page.ask("/v1/status", Host="evil.org"))[0] == 421, "a name that leads here"
        assert (await page.ask("/", Host=f"evil.org:{page.port}"))[0] == 421
        assert (await page.ask("/v1/status", Origin="http://evil.org"))[0] == 403
        assert (await page.ask("/v1/status", Origin=f"http://127.0.0.1:{page.port + 1}"))[0] == 403
        assert (await page.ask("/v1/status", Origin="null"))[0] == 403
        assert (await page.ask("/v1/status", Sec_Fetch_Site="cross-site"))[0] == 403
        assert (await page.ask("/v1/trainers/1", "DELETE", Sec_Fetch_Site="same-site"))[0] == 403
        own = {"Origin": f"http://localhost:{page.port}", "Host": f"localhost:{page.port}"}
        assert (await page.ask("/v1/status", Sec_Fetch_Site="same-origin", **own))[0] == 200
        assert (await page.ask("/v1/status", Host="web.site.org"))[0] == 200
        assert len(page.daemon.paths) == 2

    story(tell)


@pytest.mark.parametrize(
    "path",
    [
        *("/v1/admin/drain", "/v1/trainers/x", "/v1/trainers/1/../../status", "/v1/trainers/%2e%2e%2fstatus"),
        *("/v1/studies/1%2ftrials", "/v1//status", "/v1/feed/", "/v1/agent", "/metrics", "/access.py"),
        *(
            "/../access.py",
            "/%2e%2e/access.py",
            "/page.css/../../access.py",
            "/page/index.html",
            "/v1/trainers/%d9%a3",
        ),
        *("/logs/1%2f..%2f..", "/logs/../v1/status", "//etc/passwd", "/record"),
    ],
)
def test_no_path_leads_elsewhere(path: str) -> None:
    async def tell(page: Page) -> None:
        await page.enter()
        assert (await page.ask(path))[0] in (400, 404)
        assert not page.daemon.paths

    story(tell)


def test_orders_are_passed_on_and_others_are_not() -> None:
    async def tell(page: Page) -> None:
        await page.enter()
        assert (await page.ask("/v1/trainers/7", "DELETE"))[0] == 200
        assert (await page.ask("/v1/trainers/7/priority", "POST", {"priority": 2}))[0] == 200
        assert page.daemon.paths == ["DELETE trainers/7 {} ", 'POST trainers/7/priority {} {"priority": 2}']
        for method, path in (
            ("POST", "/v1/trainers"),
            ("POST", "/v1/studies"),
            ("PUT", "/v1/status"),
            ("DELETE", "/"),
        ):
            assert (await page.ask(path, method, {}))[0] in (404, 405)

    story(tell)


def test_in_public_everybody_may_look_and_nobody_order() -> None:
    async def tell(page: Page) -> None:
        assert await page.ask("/v1/status", Host="web.site.org") == (200, "status")
        assert (await page.ask("/v1/trainers/7", "DELETE"))[0] == 405
        assert (await page.ask("/v1/trainers/7/priority", "POST", {"priority": 2}))[0] == 404
        assert (await page.ask("/logs/7"))[0] == 404
        assert (await page.ask("/v1/status", Origin="http://evil.org"))[0] == 403

    story(tell, public=True)


def test_so_many_pages_follow_and_places_become_free_again() -> None:
    async def tell(page: Page) -> None:
        await page.enter()
        page.daemon.stays = True
        streams = [asyncio.create_task(page.ask("/v1/feed")) for _ in range(STREAMS)]
        while len(page.daemon.paths) < STREAMS:
            await asyncio.sleep(0.01)
        status, told = await page.ask("/v1/feed")
        assert (status, told["error"]) == (429, "12 pages are open, the most here; close one")
        assert (await page.ask("/v1/feed", Host="evil.org"))[0] == 421
        for stream in streams:
            stream.cancel()
        await asyncio.wait(streams)
        page.daemon.stays = False
        while (await page.ask("/v1/feed"))[0] != 200:
            await asyncio.sleep(0.01)

    story(tell)


def test_a_record_is_shown_without_a_daemon() -> None:
    async def tell(page: Page) -> None:
        assert (await page.ask("/record"))[0] == 401
        await page.enter()
        assert await page.ask("/record") == (200, '{"a": 1}')
        assert (await page.ask("/about"))[1] == '{"public": false, "record": true}'
        assert (await page.ask("/v1/status"))[0] == 404

    story(tell, record=b'{"a": 1}')


def test_the_page_has_no_script_or_style_but_its_files_and_writes_text_as_text() -> None:
    found = files()
    page = found["/"][1].decode()
    assert {"/index.html", "/page.css", "/main.js", "/feed.js", "/icon.svg"} <= found.keys()
    assert " style=" not in page and "javascript:" not in page and "<script>" not in page
    for path, (kind, data) in found.items():
        if kind.startswith("text/javascript"):
            for word in (
                b"innerHTML",
                b"outerHTML",
                b"insertAdjacentHTML",
                b"document.write",
                b"eval(",
                b"Function(",
            ):
                assert word not in data, (path, word)
            assert b"http://" not in data and b"https://" not in data, f"{path} asks another site"
