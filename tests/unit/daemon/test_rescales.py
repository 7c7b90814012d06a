"""What members tell of their pauses is shown once for each rescale."""

from __future__ import annotations

from typing import Any

from bftrainer.daemon.answers.views.rescales import SHOWN, rescales, rows_for


def row(generation: int, node: str, **more: Any) -> dict[str, Any]:
    """A row of the table of pauses."""
    own = {"id": 1, "trainer": 1, "time": 1.0, "kind": "join", "size": 3, "step": 7, "pause_s": 0.1}
    return {**own, "generation": generation, "node": node, "lost_steps": 0, **more}


def test_a_rescale_is_shown_once_with_its_longest_pause() -> None:
    found = rescales(
        [
            row(2, "a", kind="restart", size=1, step=0),
            row(3, "a", pause_s=0.3),
            row(3, "b", time=2.0, pause_s=0.2, kind="loss", lost_steps=1),
        ],
        asked=4,
    )
    assert [(r["generation"], r["kind"], r["told"]) for r in found] == [(2, "restart", 1), (3, "loss", 2)]
    assert (found[1]["time"], found[1]["pause_s"], found[1]["lost_steps"]) == (2.0, 0.3, 1)


def test_a_second_pause_of_a_node_in_one_membership_is_another_rescale() -> None:
    found = rescales([row(3, "a"), row(3, "b"), row(3, "a", step=9), row(3, "b", step=9)], asked=5)
    assert [(r["step"], r["told"]) for r in found] == [(7, 2), (9, 2)]


def test_the_last_ones_are_shown_though_many_members_tell_of_each() -> None:
    nodes = [f"n{n}" for n in range(40)]
    rows = [row(generation, node) for generation in range(1, 30) for node in nodes]
    asked = rows_for(len(nodes))
    found = rescales(rows[-asked:], asked)
    assert [r["generation"] for r in found] == [*range(30 - SHOWN, 30)]
    assert {r["told"] for r in found} == {40}
    assert rows_for(10**6) == 1000
    (partly,) = rescales(rows[-50:], 50)
    assert (partly["generation"], partly["told"]) == (29, 40), "of the one before members may be missing"
    assert len(rescales(rows[-30:], 30)) == 1, "the only one is shown in any case"


def test_rows_that_hold_no_numbers_are_left_out() -> None:
    odd = [row(3, "b", **{name: "long"}) for name in ("pause_s", "lost_steps", "time")] + [
        row(3, "c", step=None)
    ]
    assert [r["told"] for r in rescales([row(3, "a"), *odd], asked=9)] == [1]
