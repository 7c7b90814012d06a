"""The page in a real browser: it shows what the daemon says while nodes come and go, and texts as text."""

from __future__ import annotations

import base64
import gzip
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from bftrainer.cli.report_command import command as report_command
from tests.support.browser import Browser, browser, web
from tests.support.site import SCRIPTS, Site
from tests.unit.replay.test_altered_records import RECORD, TRAINER

NODES = tuple(f"r{rack}n{n}" for rack in (1, 2) for n in range(1, 4))
HOSTILE = "<img src=x onerror=\"document.title='owned'\">"
ADAPTS = tuple(f"goodput.{name}" for name in ("batch", "initial", "noise", "speed", "efficiency"))
VIEWS = ("nodes", "trainers", "trainer/1", "queue", "decisions", "host", "studies", "studies/1")


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """Three trainers, of which one can never run, and a study, whose texts are hostile where texts may be."""
    made = Site([])
    made.at_will(*NODES)
    try:
        made.start()
        made.change(give=NODES[:4])
        made.submit(
            "good", str(SCRIPTS / "steady.py"), n_max=3, env={"STEADY_METRIC": "|".join([HOSTILE, *ADAPTS])}
        )
        made.submit("wrong", str(SCRIPTS / "fail.py"), n_max=1)
        made.until_ended("wrong")
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
    page.shows(
        "6 nodes: 4 train, 0 start for trainers",
        f"By user: {site.trainer('good')['user']} 4.",
        "Which nodes are not ours, and why",
    )
    slider = "const s = document.querySelector('input[type=range]'); return [s.value, s.max]"
    assert len(set(page.script(slider))) == 1, "the slider stands at the right when the map shows now"
    site.change(take=NODES[:2])
    page.until(lambda: counts(page) == told(site) == (2, 0), "nodes have left")
    (job,) = {n["job"] for n in site.get("pool")["nodes"] if n["node"] in NODES[:2]}
    page.shows(f"job {job}", "not known: the scheduler tells no time limit of it", "r1n1 r1n2")
    page.view("decisions")
    page.shows(f"taken back by the main scheduler for main job {job}")
    page.view("nodes")
    site.change(give=NODES)
    page.until(lambda: counts(page) == told(site) == (4, 2), "nodes have come")
    page.script("document.querySelector('canvas').dispatchEvent(new KeyboardEvent('keydown', {key: 'Home'}))")
    page.shows("r1n1: ", "what happened there")
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
    assert page.text().index("huge") < page.text().index("wrong"), "those that have ended come last"
    page.enter("search", "hug")
    page.until(lambda: "huge" in page.text() and "small" not in page.text(), "it is searched")
    page.view("queue")
    page.shows(site.trainer("huge")["reason"], site.trainer("huge")["remedy"])
    page.view("decisions")
    plan = next(e for e in reversed(site.get("events", limit=100)) if e["plan"])
    page.shows("which is proven", "good gets 3", plan["plan"]["allocator"], "are proven to be optimal")
    page.enter("search", "small")
    page.until(lambda: "small gets 1" in page.text() and "good gets 3" not in page.text(), "it is searched")
    page.shows("Since ", "nodes joined", "1 failed", "The last plan (")
    page.view("decisions/r1n1")
    page.shows("r1n1, r1n2, r1n3, r2n1 joined")
    assert page.script("return document.getElementById('planned').disabled"), "all that happened is told"
    named = page.script("return [...document.querySelectorAll('nav a')].map((a) => [a.hash, a.innerText])")
    assert ["#/host", "main jobs"] in named
    page.view("trainer/1")
    page.shows("good (1)", "What is known of its speed", "samples/s", HOSTILE)
    page.shows("3 train: r1n1", "more nodes", "it has as many as it may have (3)", "did 0 steps again")
    page.shows("last pause", "from 1 to 3 nodes", "1 of 1: 1.0 times the samples/s", "noise of the gradients")
    page.view(f"trainer/{site.trainer('wrong')['id']}")
    page.shows("failed: exit code 1", "about to divide", ", last printed ")
    page.view("host")
    page.shows(
        "Idle nodes left to main jobs", "auto", "the scheduler answers", "The trainers that you see used"
    )
    page.shows("without our pilots now")
    page.view("studies")
    page.shows("search", "node-hours", "under way")
    page.view("studies/1")
    page.shows("Rungs", "Parameters", "forecast")
    assert page.complaints() == [], "nothing fails, and the policy refuses nothing"
    assert "owned" not in page.driver.title and not page.script("return document.images.length")


@pytest.mark.parametrize(
    ("low", "high", "found"),
    [
        ("0", "10", [0, 2, 4, 6, 8, 10]),
        ("-1e308", "1e308", []),  # they differ by more than a number can say
        ("1e16", "1e16 + 4", [1e16]),
        ("5e-324", "1e-323", []),
        ("0", "NaN", []),
    ],
)
def test_an_axis_has_few_marks_whatever_a_script_reports(
    page: Browser, low: str, high: str, found: list[float]
) -> None:
    assert page.script(f"return import('/draw.js').then((draw) => draw.ticks({low}, {high}))") == found


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        # a node in place of another, which the scheduler has taken
        (
            """decisions.js').then((m) => m.sentence({kind: 'NodesChanged', pool_size: 2,
            data: {joined: [], left: ['a'], reason: 'poll'},
            plan: {allocation: {7: ['b', 'c']}, proven: true, objective: 1}},
            {allocation: {7: ['a', 'c']}}, (id) => `t${id}`))""",
            "a left, taken back by the main scheduler. Of 2 in the pool, t7 gets b in place of a; ",
        ),
        # who gets no pilots, where, and why
        (
            """decisions.js').then((m) => [{users: {ben: 'n6 was not free'}, nodes: {}},
            {users: {}, nodes: {ann: ['n8']}}, {users: {}, nodes: {}}].map(
            (data) => m.happened({kind: 'UsersBarred', data})).join('; '))""",
            "ben gets no pilots for a while: n6 was not free; ann gets no pilots for a while on n8; "
            "who gets no pilots for a while has changed",
        ),
        # what the daemon itself leaves to main jobs, the main scheduler has not taken
        (
            """decisions.js').then((m) => m.happened({kind: 'NodesChanged', data: {joined: [],
            left: ['a', 'b', 'c'], vacated: ['b', 'c'], reason: 'poll', jobs: {9: ['c']}}}))""",
            "a, c left, taken back by the main scheduler for main job 9 (c), b left, given up by the daemon",
        ),
        # workers stop without a plan where their user gets no pilots; they start again with the next one
        (
            """decisions.js').then((m) => m.paired([
            {id: 1, kind: 'PlanDue', data: {}, actions: [], plan: {allocation: {7: ['a', 'b']}}},
            {id: 2, kind: 'UsersBarred', data: {users: {ann: 'n6 was not free'}}, plan: null,
            actions: [{kind: 'StopWorker', trainer: 7, data: {node: 'a'}}]},
            {id: 3, kind: 'PlanDue', data: {left: 2}, actions: [], pool_size: 2,
            plan: {allocation: {7: ['a', 'b']}, proven: true, objective: 1}}]).slice(1)
            .map(([event, before]) => [m.sentence(event, before, (id) => `t${id}`),
            ...['a', 'b'].map((node) => m.concerns(event, before, node))].join(' '))
            .join(' | '))""",
            "ann gets no pilots for a while: n6 was not free. So t7 goes from 2 to 1. true false | it was "
            "time to share anew. Of 2 in the pool, t7 goes from 1 to 2; the objective is 1, and no other "
            "split is better, which is proven. true false",
        ),
        # the last plan comes first
        (
            """decisions.js').then((m) => m.summary([
            {time: 1, plan: {allocator: 'knapsack', solve_s: 0.004, proven: true}},
            {time: 2, plan: {allocator: 'milp', solve_s: 0.002, proven: false, fallback: 'its time was up'}}])
            .replace(/[(].*?[AP]M/, '('))""",
            "The last plan (, milp) took 2 ms, and is not proven to be optimal: its time was up. "
            "The last 2 took 4 ms",
        ),
        # idle nodes that are not in the pool yet, and how long a quarantine lasts
        (
            """node_tables.js').then((m) => m.notOurs([['a', 'idle', 'free'], ['b', 'idle', 'clearing'],
            ['c', 'idle', null], ['d', 'unused', 'quarantined', 5]].map(([node, state, phase, until]) =>
            ({node, state, phase, until, why: '', role: null}))).map((one) => [one.names, one.state, one.why,
            one.ends].join(' ')).join('; '))""",
            "b unused its pilot has ended, and is cleared away ; c unused idle since a moment: it joins "
            "soon ; d in quarantine  5",
        ),
        (
            """studies.js').then((m) => m.forecast({text: 'done in 12 min', at: 100, because: 'it began'},
            1060))""",
            "planned 16 min ago (it began): done in 12 min",
        ),
        (
            """host.js').then((m) => [0, 3].map((count) => m.verdict({affected: {count: 0},
            unaffected: {count: 0}, all: {count}})).join(' '))""",
            "No main job has started. No main job can have waited for us.",
        ),
        # the longest of the members' pauses in each change
        (
            """trainer.js').then((m) => m.paid([{generation: 1, pause_s: 1, lost_steps: 2},
            {generation: 1, pause_s: 3, lost_steps: 2}, {generation: 2, pause_s: 2, lost_steps: 0}]))""",
            "2 in all: it stood still for 5 s, and did 2 steps again",
        ),
        (
            """trainer.js').then((m) => [[9, 'failed'], [4, 'failed'], [3, 'waiting'], [9, 'completed'],
            [null, 'failed']].map(([saved, status]) => m.checkpoint({saved, status, step: 5,
            members: [], ended_at: status === 'failed' ? 1 : null, unit: 'node'})).join('; '))""",
            "the last is of step 9: no step is lost; the last is of step 4: step 5 is lost; "
            "the last is of step 3: steps 4 to 5 will be done again; ; ",
        ),
        (
            """trainer.js').then((m) => [[[], 2], [['a'], 1], [['a', 'b'], 1]].map(
            ([members, n_min]) => m.more({members, n_min, n_max: 2, scalability: {points: [[1, 10], [2, 18]],
            sizes: []}, unit: 'node', ended_at: null})).join('; '))""",
            "; yes: 18 samples/s on 2, 1.8 times those on 1 (a forecast); it has as many as it may have (2)",
        ),
        (
            """trainer.js').then((m) => [m.placed({members: ['b'], nodes: ['c', 'a', 'b']}),
            m.placed({members: [], nodes: []})].join('; '))""",
            "1 trains: b; 2 start: a c; none",
        ),
        (
            """decisions.js').then((m) => m.lately([
            {id: 1, time: 100, kind: 'NodesChanged', data: {joined: ['a', 'b'], left: [], reason: 'poll'},
            plan: {allocation: {7: ['a']}}},
            {id: 2, time: 5000, kind: 'NodesChanged', data: {joined: ['c'], left: ['a'], reason: 'poll'},
            plan: {allocation: {7: ['b']}}},
            {id: 3, time: 5001, kind: 'PlanDue', data: {}, plan: {allocation: {7: ['b']}}}],
            [{submitted_at: 1, ended_at: 4000, status: 'failed'}, {submitted_at: 4900, ended_at: null}],
            5100))""",
            "In the last hour: nodes joined 1 time and left 1 time, 1 taken back by the main scheduler; "
            "1 decision moved nodes. Trainers: 1 submitted, 1 failed.",
        ),
        # a search finds nodes that a sentence only counts
        (
            """decisions.js').then((m) => m.searched({kind: 'NodesChanged',
            data: {joined: ['a', 'b', 'c', 'd', 'e9'], left: [], reason: 'poll'},
            plan: {allocation: {7: ['f']}}}, {allocation: {7: ['g']}}, 'Some joined'))""",
            "some joined a b c d e9 g f",
        ),
        # one trial alone has no range
        (
            """studies.js').then((m) => { const one = m.places([{params: {lr: 0.1}}], 'lr');
            return [one.at(0.1), one.low, one.high].join(' '); })""",
            "0.5 0.1 ",
        ),
        # a size that was never tried has what plans count with
        (
            """trainer.js').then((m) => m.expected([[1, 10], [2, 18]], [{nodes: 1, rate: 11, error: 0.1,
            source: 'observed'}]).map((row) => row.join(' ')).join('; '))""",
            "1 10 11 10.0 % observed; 2 18 - - a guess",
        ),
        # an end that nothing tells to be unsure of is not said to be the latest
        (
            """trainer.js').then((m) => [[null, 600, 600, null], [300, 600, 1200, null],
            [590, 600, null, null], [null, 600, 600, 60], [null, 600, 900, 0]].map(
            ([early, likely, late, waits]) => m.ending({unit: 'node', ends_in_s: {early: null, likely, late,
            waits, unknown: ''}}, 0, early).replace(/ [(].*?[)]/g, '')).join('. '))""",
            "probably in 10 min, at its present speed; how much later it may be is not known: on average it "
            "was no slower than now. probably in 10 min, at its present speed; in 5 min at the earliest, on "
            "as many nodes as it may get; in 20 min at its average speed since it was submitted. probably in "
            "10 min, at its present speed; how much later it may be is not known yet: it was submitted a "
            "moment ago. probably in 10 min, if it gets nodes in 60 s; how much later it may be is not "
            "known: no slower speed of it is known. probably in 10 min, if its workers are ready soon; in "
            "15 min with fewer nodes, or as slowly as until now",
        ),
        # the main job on a node, and until when: large jobs come after all that may need somebody
        (
            """node_tables.js').then((m) => m.notOurs([['a', 'allocated', '7', 900],
            ['b', 'allocated', '7', 900], ['c', 'mixed+drain', '8', null], ['d', 'job 9', '9', 60],
            ['e', 'down', '', null]].map(([node, why, job, until]) => ({node, why, job, until, state: 'busy',
            role: null}))).map((one) => [one.why, one.names, m.until(one).replace(/\\d.*[AP]M/, 'T')]
            .join(' ')).join('; '))""",
            "down e not known; job 7 (allocated) a,b T at the latest; job 8 (mixed+drain) c not known: the "
            "scheduler tells no time limit of it; job 9 d T at the latest",
        ),
        # which main jobs nodes went to
        (
            """decisions.js').then((m) => [{8: ['a', 'b']}, {8: ['a']}, {8: ['a'], 9: ['b']},
            Object.fromEntries([1, 2, 3, 4, 5, 6].map((job) => [job, ['a']])), undefined].map((jobs) =>
            m.happened({kind: 'NodesChanged', data: {joined: [], left: ['a', 'b'], reason: 'poll', jobs}})
            .replace('a, b left, taken back by the main scheduler', '')).join(';'))""",
            " for main job 8; for main job 8 (a); for main jobs 8 (a), 9 (b); "
            "for main jobs 1 (a), 2 (a), 3 (a), 4 (a) and 2 more;",
        ),
        # which one took a node by itself is known a moment after the node has left
        (
            """decisions.js').then((m) => {
            const told = [[['a', 'b'], {7: ['b']}], [[], {8: ['a']}], [['a'], {}], [[], {9: ['a', 'b']}]].map(
            ([left, jobs]) => ({kind: 'NodesChanged', data: {joined: [], left, jobs, reason: 'poll'}}));
            return m.attributed(m.attributed(told)).map((one) => m.happened(one)).join('. '); })""",
            "a, b left, taken back by the main scheduler for main jobs 7 (b), 8 (a). main job 8 has taken a. "
            "a left, taken back by the main scheduler for main job 9. main job 9 has taken a, b",
        ),
        (
            """nodes.js').then((m) => [0, 1].map((at) => m.moment([
            {kind: 'NodesChanged', data: {joined: [], left: ['a'], jobs: {8: ['a']}}},
            {kind: 'NodesChanged', data: {joined: ['a'], left: [], jobs: {}}},
            {kind: 'NodesChanged', data: {joined: [], left: ['a'], jobs: {9: ['a']}}}], at, []))
            .map(({jobs, there}) => [jobs.get('a'), there.has('a')].join(' ')).join(';'))""",
            "8 false;8 true",
        ),
        # decisions stay in sight however many measurements come after them
        (
            """decisions.js').then((m) => [m.merged([{id: 1}, {id: 2}], [{id: 2}, {id: 3}]).map((e) => e.id),
            m.merged([{id: 1}], [{id: 3}]), m.merged([], [{id: 3}]).length].join('; '))""",
            "1,2,3; ; 1",
        ),
        # the GPUs of a node stay in one line
        (
            """nodes.js').then((m) => m.layout(m.racks([1, 2, 3].flatMap((n) =>
            [0, 1, 2, 3].map((g) => `n${n}:${g}`))), 900, 500).labels.map((one) => one[3]).join(' '))""",
            "8",
        ),
        ("draw.js').then((m) => m.moments(1.7e9 + 7, 1.7e9 + 250, 5).join(' '))",
         "1700000040 1700000100 1700000160 1700000220"),
    ],
)  # fmt: skip
def test_what_happened_is_said_in_words(page: Browser, asked: str, said: str) -> None:
    assert str(page.script(f"return import('/{asked}")).startswith(said)


def test_it_says_whether_it_still_hears_of_the_daemon(page: Browser) -> None:
    page.view("nodes")
    page.shows("wait; live")
    page.script("window.own = Date.now; let calls = 0; Date.now = () => own() + 40000 * (calls += 1)")
    try:
        page.shows("not live: as it was at ")
    finally:
        page.script("Date.now = own")
    page.shows("wait; live")


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
    page.view("trainers")
    page.shows("good")
    table = "const t = document.querySelector('.trainers'); return t.scrollWidth - t.clientWidth"
    assert page.script(table) <= 0, "all columns are in sight on a desktop"
    page.driver.set_window_size(380, 800)
    for view in ("queue", "trainers"):
        page.view(view)
        page.shows(reason := site.trainer("huge")["reason"])
        box = page.script(
            f"const d = [...document.querySelectorAll('td')].find(d => d.innerText.includes({reason!r}));"
            "const b = d.getBoundingClientRect(); return [b.left, b.right, d.scrollWidth - d.clientWidth,"
            " d.scrollHeight - d.clientHeight, d.closest('tr').getBoundingClientRect().height]"
        )
        assert box[0] >= 0 and box[1] <= 380 and max(box[2:4]) <= 0, "why it waits is in sight on a phone"
    assert box[4] == 72, "a row's height is what the script counts with"
    page.driver.set_window_size(1280, 800)
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


def test_pictures_of_each_view_light_and_dark(site: Site, page: Browser, tmp_path: Path) -> None:
    """PICTURES=docs/pictures/web keeps them there for the documentation."""
    folder = Path(os.environ.get("PICTURES", tmp_path))
    page.driver.set_window_size(1000, 700)
    for theme in ("light", "dark"):
        if page.script("return document.documentElement.dataset.theme") != theme:
            page.script("document.getElementById('theme').click()")
        for view in VIEWS:
            page.view(view)
            page.until(
                lambda: page.script("return document.querySelectorAll('main td, main canvas').length"),
                "drawn",
            )
            page.driver.execute_async_script(
                "requestAnimationFrame(() => requestAnimationFrame(arguments[0]))"
            )
            shot = {"format": "webp", "quality": 70}
            found = base64.b64decode(page.driver.execute_cdp_cmd("Page.captureScreenshot", shot)["data"])
            assert found[8:12] == b"WEBP" and len(found) > 2000, f"{view} is empty"
            (folder / f"{view.replace('/1', '-one')}-{theme}.webp").write_bytes(found)


def write_record(path: Path) -> None:
    """Two nodes for 100 s; the second one trains from second 40 to 80, under a name that is hostile."""
    stays = {"node": [0, 1, 1], "trainer": [0, 0, 1], "begin": [0, 20, 40], "end": [100, 90, 80]}
    trainer = {**TRAINER, "name": HOSTILE, "model": "</script><b>x", "started": 40, "ended": 80}
    own = {**RECORD, "begin": 0, "end": 100, "nodes": ["n1", "n2"], "stays": stays, "trainers": [trainer]}
    path.write_bytes(gzip.compress(json.dumps(own).encode()))


def test_a_record_opens_in_the_page_and_as_one_file(tmp_path: Path) -> None:
    record, page_file = tmp_path / "made.json.gz", tmp_path / "made.html"
    write_record(record)
    done = CliRunner().invoke(report_command, [str(record), "--interactive", "--out", str(page_file)])
    assert done.exit_code == 0, done.output
    with web(None, str(record)) as url, browser() as found:
        for address in (url, page_file.as_uri()):
            found.open(address)
            found.shows("After 0 s: 1 nodes idle, 0 of them train.", HOSTILE, "</script><b>x")
            for value, said in ((600, "2 nodes idle, 1 of them"), (850, "2 nodes idle, 0 of them")):
                found.enter("range", str(value))
                found.shows(said)
            assert found.complaints() == []
            assert "owned" not in found.driver.title


@pytest.mark.nightly
def test_a_page_that_stays_open_for_ten_minutes_does_not_grow(site: Site, page: Browser) -> None:
    """In nodes of the document, and in memory after a collection."""

    def size() -> tuple[int, float]:
        page.driver.execute_cdp_cmd("HeapProfiler.collectGarbage", {})
        found = page.driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
        known = {metric["name"]: metric["value"] for metric in found}
        return int(known["Nodes"]), known["JSHeapUsedSize"] / 1e6

    page.driver.execute_cdp_cmd("Performance.enable", {})
    sizes = []
    for turn in range(20):
        for view in ("nodes", "trainers", "trainer/1", "decisions"):
            page.view(view)
            for _ in range(3):
                site.change(take=NODES[:2])
                page.until(
                    lambda: int(page.script("return document.documentElement.dataset.seq")), "it goes on"
                )
                time.sleep(1.2)
                site.change(give=NODES[:2])
                time.sleep(1.2)
        page.view("nodes")
        page.shows("Point at a cell")
        sizes.append(size())
        print(turn, *sizes[-1])
    early, late = sizes[4:8], sizes[-4:]
    assert min(nodes for nodes, _ in late) <= 1.2 * max(nodes for nodes, _ in early), sizes
    assert min(heap for _, heap in late) <= 1.2 * max(heap for _, heap in early) + 1.0, sizes
