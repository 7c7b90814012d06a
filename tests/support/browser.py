"""A real headless Chromium, and `bftrainer web` to be opened in it; both are skipped where there is none."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.waiting import LONG_S

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
ROOT = Path(__file__).parents[2]


@contextlib.contextmanager
def web(state: Path | None, *words: str, environ: dict[str, str] | None = None) -> Iterator[str]:
    """Run `bftrainer web`; yield the link that it prints."""
    command = [sys.executable, "-m", "bftrainer", "web", "--no-browser", *words]
    command += ["--state-dir", str(state)] if state else []
    process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, env=environ, text=True)
    try:
        assert process.stdout is not None
        said = process.stdout.readline()
        found = re.search(r"http://\S+", said)
        assert found, said
        yield found.group()
    finally:
        process.terminate()
        process.wait(LONG_S)


class Browser:
    """One page in Chromium. What its console says is an error for every test: also what a CSP refuses."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, url: str) -> None:
        """Go to an address."""
        self.driver.get(url)

    def script(self, text: str) -> Any:
        """Return what a script of the test returns in the page."""
        return self.driver.execute_script(text)

    def text(self) -> str:
        """Return the text that the page shows."""
        return str(self.script("return document.body.innerText"))

    def until(self, found: Callable[[], object], what: str) -> None:
        """Wait until something is found in the page."""
        deadline = time.monotonic() + LONG_S
        while not found():
            assert time.monotonic() < deadline, f"{what}; the page shows: {self.text()[:2000]}"
            time.sleep(0.05)

    def shows(self, *words: str) -> None:
        """Wait until the page shows these words."""
        for word in words:
            self.until(lambda word=word: word in self.text(), f"the page shows {word!r}")  # type: ignore[misc]

    def view(self, path: str) -> None:
        """Go to one of the page's views."""
        self.script(f"location.hash = '#/{path}'")

    def enter(self, kind: str, value: str) -> None:
        """Put a value into the input of a kind, as a user would."""
        place = f"const s = document.querySelector('input[type={kind}]')"
        self.script(f"{place}; s.value = {value!r}; s.dispatchEvent(new Event('input'))")

    def complaints(self) -> list[str]:
        """Return what the console says since it was last asked."""
        return [entry["message"] for entry in self.driver.get_log("browser")]


@contextlib.contextmanager
def browser(width: int = 1280, height: int = 900) -> Iterator[Browser]:
    """Open a browser of its own; skip the test where there is none."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    if not (CHROMIUM and DRIVER):
        pytest.skip("no chromium with its driver: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(word)
    options.add_argument(f"--window-size={width},{height}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    try:
        yield Browser(driver)
    finally:
        driver.quit()
