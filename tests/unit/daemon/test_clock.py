"""The daemon's clock while the machine's is set: it goes on, and no time-out stalls or strikes early."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.daemon.clock import AGREED_S, CORRECTION, WallClock, difference
from bftrainer.model.machine import NodeState
from bftrainer.nodes.quarantine import Refusals
from tests.support.nodes_world import World
from tests.support.slurm_commands import Commands

HOUR_S = 3600.0
DAY_S = 86_400.0


class Machine:
    """A machine whose clock can be set."""

    def __init__(self) -> None:
        self.wall, self.booted = 1.7e9, 100.0
        self.clock = WallClock(lambda: self.wall, lambda: self.booted)

    def wait(self, seconds: float) -> float:
        """Let time pass; returns by how much the clock went on."""
        before = self.clock.now()
        self.wall += seconds
        self.booted += seconds
        return self.clock.now() - before


@given(
    st.lists(
        st.tuples(st.floats(-2 * HOUR_S, 2 * HOUR_S), st.floats(0.0, 100.0)),
        max_size=20,
    )
)
def test_it_never_goes_back_and_never_far_from_a_second_a_second(changes: list[tuple[float, float]]) -> None:
    machine = Machine()
    for set_by, waits in changes:
        machine.wall += set_by
        went = machine.wait(waits)
        assert (1 - CORRECTION) * waits - 1e-3 <= went <= (1 + CORRECTION) * waits + 1e-3


@pytest.mark.parametrize("set_by", [-HOUR_S, HOUR_S])
def test_after_the_machines_clock_was_set_it_comes_to_agree(set_by: float) -> None:
    machine = Machine()
    machine.wall += set_by
    assert machine.clock.behind_s() == pytest.approx(set_by)
    for _ in range(11):
        machine.wait(HOUR_S)
    assert machine.clock.now() == machine.wall and machine.clock.behind_s() == 0.0


def test_a_clock_that_was_plainly_wrong_is_not_approached_for_years() -> None:
    machine = Machine()
    machine.clock.now()
    machine.wall += 20 * 365 * DAY_S
    assert machine.clock.now() < 1.7e9 + 1.0, "this may be a glitch"
    machine.wait(AGREED_S)
    assert machine.clock.now() == machine.wall


def test_a_clock_that_is_wrong_for_a_moment_moves_ours_not() -> None:
    """Events that are no older than `keep_events_days` would be deleted."""
    machine = Machine()
    for _ in range(3):
        machine.wall += 10 * 365 * DAY_S
        machine.wait(AGREED_S / 2)
        machine.wall -= 10 * 365 * DAY_S
        machine.wait(1.0)
    assert abs(machine.clock.now() - machine.wall) < AGREED_S


def test_a_clock_that_differs_is_told() -> None:
    assert difference(0.0) == difference(-59.0) == ""
    assert "it is 3600 s ahead of the daemon's" in difference(3600.0)
    assert "it is 2.5 days behind the daemon's" in difference(-2.5 * DAY_S)


def test_a_clock_set_back_by_years_takes_ours_not_back() -> None:
    machine = Machine()
    before = machine.clock.now()
    machine.wall -= 20 * 365 * DAY_S
    assert machine.clock.now() == before
    assert machine.wait(100.0) >= (1 - CORRECTION) * 100.0 - 1e-3


def test_small_differences_are_none() -> None:
    machine = Machine()
    machine.wall += 0.3
    assert machine.clock.behind_s() == 0.0


def test_it_can_be_read_in_several_threads() -> None:
    clock, wrong = WallClock(), []

    def read() -> None:
        last = clock.now()
        for _ in range(5000):
            now = clock.now()
            if now < last:
                wrong.append((last, now))
            last = now

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and abs(clock.now() - time.time()) < 1.0


# --- what is counted on it -----------------------------------------------------------------------


def test_what_was_refused_is_tried_again_in_time() -> None:
    machine = Machine()
    refused = Refusals()
    refused.more(machine.clock.now(), "no")
    machine.wall -= HOUR_S
    machine.wait(refused.until - 1.7e9 + 10)
    assert machine.clock.now() > refused.until


@pytest.mark.parametrize("set_by", [-HOUR_S, HOUR_S])
def test_nodes_join_and_pilots_are_submitted_after_the_clock_was_set(tmp_path: Path, set_by: float) -> None:
    machine = Machine()
    world = World(tmp_path, nodes=2, debounce_s=5.0)
    world.now = machine.clock.now  # type: ignore[method-assign]
    world.scheduler._now = machine.clock.now

    async def scenario() -> None:
        await world.nodes.watch.poll()
        machine.wall += set_by
        assert not world.pool
        machine.wait(6.0)
        await world.nodes.watch.poll()

    asyncio.run(scenario())
    joined = [event for event in world.events if getattr(event, "joined", None)]
    assert joined, "they have been idle for long enough"


@pytest.mark.parametrize("behind", [0.0, -HOUR_S, HOUR_S])
def test_times_that_slurm_tells_are_on_the_machines_clock(tmp_path: Path, behind: float) -> None:
    async def until(clock_behind: float) -> dict[str, float]:
        folder = tmp_path / str(clock_behind)
        folder.mkdir(exist_ok=True)
        commands = Commands(folder)
        commands.clock.behind = clock_behind
        commands.clock.time -= clock_behind
        snapshot = await commands.scheduler().poll()
        assert snapshot.time == commands.clock.time
        assert any(node.state is NodeState.IDLE for node in snapshot.nodes)
        return {n.name: n.until - snapshot.time for n in snapshot.nodes if n.until is not None}

    assert asyncio.run(until(behind)) == asyncio.run(until(0.0)), "as far away as ever"
