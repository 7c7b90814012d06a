"""What each worker of a node is given, and which devices are taken out of use."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.agent.devices import PilotDevices, devices_of
from bftrainer.agent.health import FAILURES, Health
from bftrainer.agent.seats import Seat, Seats, SeatsError


def pilot(*names: str) -> PilotDevices:
    return devices_of({"CUDA_VISIBLE_DEVICES": ",".join(names)})


def test_a_single_worker_keeps_the_environment_of_its_pilot() -> None:
    assert Seats(PilotDevices(), range(8)).give(1, {}, together=False) == [Seat()]
    assert Seats(pilot("4", "6"), range(8)).give(1, {}, together=False) == [Seat()], "it may use both"


@given(st.integers(2, 8), st.booleans())
def test_each_worker_has_a_device_and_cores_of_its_own(count: int, together: bool) -> None:
    names = [str(3 * i + 1) for i in range(count)]
    seats = Seats(pilot(*names), range(16)).give(count, {}, together=together)
    assert [(seat.local_rank, seat.local_size) for seat in seats] == [(i, count) for i in range(count)]
    assert len({core for seat in seats for core in seat.cores}) == 16
    own = [dict(seat.env)["CUDA_VISIBLE_DEVICES"].split(",")[seat.index] for seat in seats]
    assert own == names, "of those that it sees, its own has the number that its script takes"
    assert all(len(dict(seat.env)["CUDA_VISIBLE_DEVICES"].split(",")) == 1 for seat in seats) is not together
    assert {dict(seat.env)["OMP_NUM_THREADS"] for seat in seats} <= {str(16 // count), str(-(-16 // count))}


def test_a_spec_may_set_the_number_of_threads() -> None:
    (seat, _) = Seats(pilot("0", "1"), range(4)).give(2, {"OMP_NUM_THREADS": "7"}, together=False)
    assert dict(seat.env) == {"CUDA_VISIBLE_DEVICES": "0"}


def test_more_workers_than_devices_are_refused_with_what_to_do() -> None:
    with pytest.raises(SeatsError, match=r"4 workers are asked for \(nodes.workers\), and the node has 2"):
        Seats(pilot("0", "1"), range(4)).give(4, {}, together=False)
    assert len(Seats(PilotDevices(), range(4)).give(4, {}, together=False)) == 4, "where there are no devices"


def test_a_device_that_fails_worker_after_worker_is_taken_out() -> None:
    seats = Seats(pilot("4", "6", "9"), range(6))
    for _ in range(FAILURES):
        given = seats.give(3, {}, together=False)
        bad = next(seat for seat in given if seat.device is not None and seat.device.name == "6")
        assert bad.device is not None
        out = seats.health.failed(bad.device)
    assert out and seats.told() == {"kind": "cuda", "count": 2, "out": ["6: 4 workers in a row failed on it"]}
    names = {dict(seat.env)["CUDA_VISIBLE_DEVICES"] for seat in seats.give(2, {}, together=False)}
    assert names == {"4", "9"}
    (single,) = seats.give(1, {}, together=False)
    assert set(dict(single.env)["CUDA_VISIBLE_DEVICES"].split(",")) == {"4", "9"}
    with pytest.raises(SeatsError, match="out of use: 6"):
        seats.give(3, {}, together=False)


@given(st.integers(2, 6), st.integers(0, 5))
def test_a_program_whose_worker_fails_always_costs_no_device(count: int, rank: int) -> None:
    health = Health(pilot(*map(str, range(count))).all)
    for _ in range(20):
        assert not health.failed(health.give(count)[rank % count])


def test_what_ends_well_between_acquits_a_device() -> None:
    health = Health(pilot("0", "1").all)
    device = health.usable[0]
    for turn in range(3 * FAILURES):
        assert not health.failed(device)
        if turn % 2:
            health.worked()


def test_the_last_device_stays() -> None:
    health = Health(pilot("0").all)
    assert not any(health.failed(health.usable[0]) for _ in range(2 * FAILURES))
