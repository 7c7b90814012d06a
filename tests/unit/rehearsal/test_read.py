"""What the recorder wrote in several processes, read as the record of one run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bftrainer.rehearsal.read import ProcessEvents, processes_of, recorded

PRINT = [1.0, 0.5, -0.5, 0.25]


def step(
    n: int, at: int | None = None, *, rank: int = 0, size: int = 1, time: float = 0.0, **more: Any
) -> Any:
    about = {"event": "step", "opt": 0, "n": n, "at": at, "before": None, "rank": rank, "size": size}
    given = {"whole": True, "params": [PRINT], "grads": [None], "hyper": {"lr": 0.1}, "rows": [], "vars": {}}
    return {**about, **given, "time": time or float(n), **more}


def said(kind: str, **fields: Any) -> Any:
    return {"event": "said", "kind": kind, "time": 0.0, **fields}


@given(st.integers(0, 50), st.integers(1, 10))
def test_steps_of_a_process_that_was_resumed_follow_what_the_script_reports(begin: int, count: int) -> None:
    events = []
    for n in range(1, count + 1):
        events += [step(n), said("moved", step=begin + n, metrics={"loss": 0.5})]
    record = recorded("a", 1, [ProcessEvents(events=events)])
    assert [at for _, at in record.steps] == list(range(begin + 1, begin + count + 1))
    assert record.figures["loss"][begin + 1] == [0.5]


def test_so_do_those_of_several_optimizers_and_of_a_script_that_reports_now_and_then() -> None:
    events: list[Any] = []
    for n in range(1, 5):
        events += [step(n), step(n, opt=1)]
        events += [said("moved", step=20 + n, metrics={})] if n % 2 == 0 else []
    record = recorded("a", 1, [ProcessEvents(events=events)])
    assert sorted(record.steps) == [(opt, 20 + n) for opt in (0, 1) for n in range(1, 5)]


def test_an_optimizer_that_steps_more_seldom_is_found_again_in_a_process_that_goes_on() -> None:
    """As a generator that steps after every second step of its critic: its steps before the restart are no
    step of the process that goes on, which tells of the critic's only."""

    def process(begin: int, end: int) -> ProcessEvents:
        events, seldom = list[Any](), 0
        for at in range(begin + 1, end + 1):
            events.append(step(at - begin, hyper={"lr": float(at)}))
            if at % 2:
                seldom += 1
                events.append(step(seldom, opt=1, hyper={"lr": float(at)}))
            events.append(said("moved", step=at, metrics={}))
        return ProcessEvents(events=events)

    alone, resumed = recorded("a", 1, [process(0, 9)]), recorded("b", 1, [process(0, 5), process(5, 9)])
    assert [at for opt, at in sorted(alone.steps) if opt] == [1, 3, 5, 7, 9]
    assert {key: facts.settings for key, facts in resumed.steps.items()} == {
        key: facts.settings for key, facts in alone.steps.items()
    }


def test_a_script_that_tells_nothing_goes_on_after_the_step_whose_weights_it_has_loaded() -> None:
    """As a script for torchrun that saves after each epoch, here of two steps; or from nothing."""

    def process(begins: float, steps: int) -> ProcessEvents:
        initial = {"event": "initial", "opt": 0, "names": [], "sizes": [], "kinds": [], "eps": 0.0}
        events = [step(n, params=[[begins + n]]) for n in range(1, steps + 1)]
        return ProcessEvents(events=[{**initial, "params": [[begins]], "at": 0}, *events])

    for begins, furthest in ((2.0, 4), (0.0, 3)):
        record = recorded("a", 1, [process(0.0, 3), process(begins, 2)])
        assert [at for _, at in record.steps] == list(range(1, furthest + 1))


def test_a_step_that_was_repeated_counts_as_it_was_taken_last() -> None:
    first = [step(n, n, rank=rank, size=2, rows=["old"], time=n) for n in (1, 2, 3) for rank in (0, 1)]
    again = [step(n, n + 1, rows=["new"], time=10.0 + n) for n in (1, 2)]
    record = recorded("a", 2, [ProcessEvents(events=first), ProcessEvents(events=again)])
    assert {at: (facts.ranks, dict(facts.rows)) for (_, at), facts in record.steps.items()} == {
        1: (2, {"old": 2}),
        2: (1, {"new": 1}),
        3: (1, {"new": 1}),
    }
    assert record.taken == 5


def test_a_rank_that_lost_a_member_in_a_step_that_others_took_has_had_its_samples_in_it() -> None:
    def broken(at: int, rows: list[str], *, size: int = 3, time: float = 0.0) -> Any:
        return {"event": "broken", "at": at, "rank": 2, "size": size, "rows": rows, "time": time}

    took = [step(1, 1, rank=rank, size=3, rows=[f"taken {rank}"]) for rank in (0, 1)]
    took += [step(2, 2, rank=rank, size=2, rows=[f"taken {rank}"]) for rank in (0, 1)]
    lost = [broken(1, ["too early"]), broken(1, ["its own"], time=1.0), broken(2, ["shared out anew"])]
    record = recorded("a", 3, [ProcessEvents(events=took), ProcessEvents(events=lost)])
    assert {at: (facts.ranks, sorted(facts.rows)) for (_, at), facts in record.steps.items()} == {
        1: (3, ["its own", "taken 0", "taken 1"]),
        2: (2, ["taken 0", "taken 1"]),
    }


def test_ranks_with_other_weights_and_steps_of_newcomers_without_the_state() -> None:
    events = [step(1, 1, size=3), step(1, 1, rank=1, size=3, params=[[1.0, 0.5, -0.4, 0.25]])]
    events.append(step(1, 1, rank=2, size=3, whole=False, params=[[9.0] * 4]))
    (facts,) = recorded("a", 3, [ProcessEvents(events=events)]).steps.values()
    assert 0.09 < facts.apart < 0.11
    assert facts.ranks == 2


def test_figures_with_steps_are_of_all_ranks_and_reports_of_rank_0() -> None:
    def process(rank: int) -> ProcessEvents:
        given = said("figures", now=False, metrics={"loss": 0.1 + rank})
        told = said("figures", now=True, metrics={"accuracy": 0.9 - rank})
        return ProcessEvents(events=[given, step(1, 1, rank=rank, size=2), told])

    record = recorded("a", 2, [process(0), process(1)])
    assert record.figures == {"loss": {1: [0.1, 1.1]}}
    assert record.reported == {"accuracy": {1: 0.9}}


def test_a_line_that_a_killed_process_could_not_finish_is_left_out(tmp_path: Path) -> None:
    whole = json.dumps(step(1, 1))
    (tmp_path / "1-1.jsonl").write_text(f"{whole}\n{whole[:40]}")
    (process,) = processes_of(tmp_path)
    assert len(process.events) == 1
