"""The site of the pages, as `make docs` makes it: what its search finds first, in a real browser."""

from __future__ import annotations

import functools
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote_plus

import pytest

from tests.support.browser import Browser, browser

ROOT = Path(__file__).parents[2]
PAGES = "README.md,docs/README.md,docs/admin.md,docs/gpu.md,docs/questions.md,docs/evidence/gpus.md"
"""Enough for a search, and made in seconds: links to the others only warn."""
FIRST = (
    "return document.querySelector('#search-results ul.search li a')?.getAttribute('href')?.split('/').pop()"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    pytest.importorskip("sphinx", reason="sphinx is not installed")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-c", "docs", "-b", "html"]
    command += ["-D", f"include_patterns={PAGES}", ".", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    handler = functools.partial(SimpleHTTPRequestHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as opened:
        yield opened


@pytest.mark.parametrize(
    ("words", "place"),
    [
        ("firewall ports", "questions.html#which-ports-must-the-firewall-open"),
        ("several GPUs", "questions.html#can-i-have-several-gpus-per-node"),
        ("upgrading", "questions.html#how-do-i-upgrade-without-stopping-trainings"),
        ("drain and pause", "admin.html#pause-drain-resume"),
        ("delete old checkpoints disk space", "questions.html#is-the-disk-full-how-do-i-delete-checkpoints"),
    ],
)
def test_the_search_leads_to_the_heading_that_has_the_words(
    site: str, chromium: Browser, words: str, place: str
) -> None:
    chromium.open(f"{site}/search.html?q={quote_plus(words)}")
    chromium.until(lambda: (found := chromium.script(FIRST)) and found.startswith(place), f"{place} is first")
