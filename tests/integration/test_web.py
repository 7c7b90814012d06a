"""The page in a real browser: it shows what the daemon says while nodes come and go, and texts as text."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.support.browser import Browser, browser, web
from tests.support.site import SCRIPTS, Site

NODES = tuple(f"r{rack}n{n}" for rack in (1, 2) for n in range(1, 4))
HOSTILE = "<img src=x onerror=\"document.title='owned'\">"
VIEWS = ("nodes", "trainers", "trainer/1", "queue", "decisions", "host", "studies", "studies/1")


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """Three trainers, of which one can never run, and a study, whose texts are hostile where texts may be."""
    made = Site([])
    made.at_will(*NODES)
    try:
        made.start()
        made.change(give=NODES[:4])
        made.submit("good", str(SCRIPTS / "steady.py"), n_max=3, env={"STEADY_METRIC": HOSTILE})
        made.submit("small", str(SCRIPTS / "steady.py"), n_max=1)
        made.submit("huge", str(SCRIPTS / "steady.py"), n_min=99, n_max=99)
        study = {
            "name": "search",
            "trainer": {"command": ["python", "x.py", "{a}", "{b}"], "nodes": {"min": 99, "max": 99}},
            "space": {"a": {"float": [0.0, 1.0]}, "b": {"choice": [HOSTILE, "plain"]}},
            "metric": "loss",
            "trials": 4,
            "budget": 1000,
        }
        body = {"spec": json.dumps(study), "name": "search.yaml", "base": str(made.root)}
        made.client.call("POST", "studies", body=body)
        made.until(lambda: made.trainer("good")["samples"], 60, "the trainer trains")
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def page(site: Site) -> Iterator[Browser]:
    with web(site.state) as url, browser() as found:
        found.open(url)
        found.shows("train,")
        yield found


def counts(page: Browser) -> tuple[int, int]:
    """The nodes that train, and those idle in the pool, as the page says."""
    found = page.script(
        "const d = document.querySelector('[data-held]')?.dataset; return d ? [d.held, d.free] : [-1, -1]"
    )
    return int(found[0]), int(found[1])


def told(site: Site) -> tuple[int, int]:
    nodes = site.get("pool")["nodes"]
    held = sum(bool(n["trainer"]) for n in nodes)
    return held, sum(n["state"] == "idle" for n in nodes) - held


def test_the_map_follows_nodes_that_come_and_go(site: Site, page: Browser) -> None:
    page.view("nodes")
    page.until(lambda: counts(page) == told(site) == (4, 0), "the page shows what the daemon says")
    site.change(take=NODES[:2])
    page.until(lambda: counts(page) == told(site) == (2, 0), "nodes have left")
    site.change(give=NODES)
    page.until(lambda: counts(page) == told(site) == (4, 2), "nodes have come")
    page.script("document.querySelector('canvas').dispatchEvent(new KeyboardEvent('keydown', {key: 'Home'}))")
    page.shows("r1n1: ")
    page.script(
        "[...document.querySelectorAll('button')].find(b => b.textContent.startsWith('Load')).click()"
    )
    page.until(
        lambda: int(page.script("return document.querySelector('input[type=range]').max")) > 3,
        "events are there",
    )
    page.enter("range", "0")
    page.until(lambda: counts(page)[0] == 0, "at first no node was held")


def test_each_view_shows_what_the_daemon_says(site: Site, page: Browser) -> None:
    page.view("trainers")
    page.shows("good", "small", "huge", "3 of 3")
    page.enter("search", "hug")
    page.until(lambda: "huge" in page.text() and "small" not in page.text(), "it is searched")
    page.view("queue")
    page.shows(site.trainer("huge")["reason"], site.trainer("huge")["remedy"])
    page.view("decisions")
    plan = next(e for e in reversed(site.get("events", limit=100)) if e["plan"])
    page.shows("which is proven", "good gets 3", plan["plan"]["allocator"])
    page.view("trainer/1")
    page.shows("good (1)", "What is known of its speed", "samples/s", HOSTILE)
    page.view("host")
    page.shows("Idle nodes left to main jobs", "auto")
    page.view("studies")
    page.shows("search", "node-hours")
    page.view("studies/1")
    page.shows("Rungs", "Parameters", "forecast")
    assert page.complaints() == [], "nothing fails, and the policy refuses nothing"
    assert "owned" not in page.driver.title and not page.script("return document.images.length")


def test_an_order_reaches_the_daemon_and_its_output_is_shown(site: Site, page: Browser) -> None:
    number = site.trainer("small")["id"]
    page.view(f"trainer/{number}")
    page.shows(f"small ({number})", "Cancel it")
    press = "[...document.querySelectorAll('button')].find(b => /ancel/.test(b.textContent)).click()"
    page.script(press)
    page.shows("Press again")
    assert site.trainer("small")["ended_at"] is None, "it asks first"
    page.script(press)
    page.until(lambda: site.trainer("small")["ended_at"], "it has ended")
    page.shows("cancelled")


def test_it_can_be_read_on_a_phone_in_the_dark_and_by_keyboard(site: Site, page: Browser) -> None:
    for width in (380, 1280):
        page.driver.set_window_size(width, 800)
        for view in VIEWS:
            page.view(view)
            page.until(
                lambda: page.script("return document.querySelector('h1')?.innerText"), "it has a heading"
            )
            over = page.script("return document.documentElement.scrollWidth - innerWidth")
            assert over <= 0, f"{view} is wider than {width} pixels by {over}"
    for theme in ("light", "dark"):
        if page.script("return document.documentElement.dataset.theme") != theme:
            page.script("document.getElementById('theme').click()")
        for name in ("text", "faint", "link", "good", "bad", "mark"):
            for back in ("back", "panel"):
                assert contrast(page, name, back) >= 4.5, (theme, name, back)
        assert contrast(page, "focus", "back") >= 3
    page.driver.find_element("tag name", "body").send_keys("3")
    page.until(lambda: page.script("return location.hash") == "#/queue", "a key leads to a view")


def contrast(page: Browser, one: str, other: str) -> float:
    """The contrast of two colours of the theme, as WCAG 2.1 defines it."""

    def light(name: str) -> float:
        text = page.script(
            f"return getComputedStyle(document.documentElement).getPropertyValue('--{name}')"
        ).strip()
        parts = [int(text[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((light(one), light(other)))
    return (high + 0.05) / (low + 0.05)
