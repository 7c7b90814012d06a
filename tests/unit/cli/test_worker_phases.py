"""Workers that do not train yet are shown: how many are in which phase, and since when."""

from __future__ import annotations

from typing import Any

from bftrainer.cli.shared.live import demo_views
from bftrainer.cli.shared.trainers.worker_phases import PhaseTimes, phases
from bftrainer.demo.view import DaemonView


def trainer(*nodes: str, members: int = 0, **workers: str) -> dict[str, Any]:
    """A trainer's row of the API."""
    return {
        "id": 1,
        "name": "digits",
        "status": "running" if members else "starting",
        "nodes": list(nodes),
        "members": list(nodes)[:members],
        "workers": workers,
        "samples": 0,
    }


def test_phases_are_counted_in_the_order_in_which_workers_pass_them() -> None:
    row = trainer("a", "b", "c", "d", "e", a="ready", b="starting", c="member", d="starting")
    assert phases(row) == "no worker 1, starting 2, ready 1"


def test_members_are_not_mentioned() -> None:
    assert phases(trainer("a", "b", members=2, a="member", b="member")) == ""


def test_a_phase_lasts_until_it_changes() -> None:
    times = PhaseTimes()
    starting, ready = trainer("a", a="starting"), trainer("a", a="ready")
    assert times.update(1.0, [starting])
    assert not times.update(4.0, [starting])
    assert times.text(starting, 4.0) == "starting 1 for 3 s"
    assert times.update(5.0, [ready])
    assert times.text(ready, 5.5) == "ready 1"


def test_a_demonstration_without_a_terminal_says_what_starting_workers_do(capsys: Any) -> None:
    pool = {"size": 1, "nodes": [{"node": "a", "devices": "", "trainer": "digits", "state": "idle"}]}
    rows = [trainer("a"), trainer("a", a="starting"), trainer("a", a="ready"), trainer("a", a="ready")]
    views = (DaemonView(float(second), pool, [row], []) for second, row in enumerate(rows))
    demo_views.show(views, 10.0, quiet=False)
    assert capsys.readouterr().out.splitlines() == [
        "  0.0 s  a=digits | digits starting 0 (no worker 1)",
        "  1.0 s  a=digits | digits starting 0 (starting 1)",
        "  2.0 s  a=digits | digits starting 0 (ready 1)",
    ]
