"""Cores are shared out to all workers of a node: none twice, none left out, those next to a device to it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.agent import cores

some_cores = st.sets(st.integers(0, 255), min_size=1, max_size=64)


@given(some_cores, st.integers(1, 16), st.lists(st.sets(st.integers(0, 255)), max_size=16))
def test_every_core_is_one_workers(mine: set[int], count: int, near: list[set[int]]) -> None:
    parts = cores.shares(mine, count, near)
    assert len(parts) == count
    if len(mine) < count:
        assert parts == [tuple(sorted(mine))] * count
        return
    assert sorted(core for part in parts for core in part) == sorted(mine)
    assert all(parts)


@given(some_cores, st.integers(1, 16))
def test_where_nothing_is_known_the_parts_are_even(mine: set[int], count: int) -> None:
    if len(mine) >= count:
        sizes = [len(part) for part in cores.shares(mine, count)]
        assert max(sizes) - min(sizes) <= 1


def test_a_worker_gets_the_cores_next_to_its_device() -> None:
    first, second = frozenset(range(8)), frozenset(range(8, 16))
    parts = cores.shares(range(16), 4, [second, second, first, first])
    assert parts == [(8, 9, 10, 11), (12, 13, 14, 15), (0, 1, 2, 3), (4, 5, 6, 7)]


def test_cores_that_are_next_to_no_device_are_shared_out_as_well() -> None:
    parts = cores.shares(range(8), 2, [{0, 1}, {2, 3}])
    assert parts == [(0, 1, 4, 5), (2, 3, 6, 7)]


def test_where_devices_share_some_of_their_cores_the_parts_are_even() -> None:
    assert cores.shares(range(4), 2, [{0, 1, 2}, {2, 3}]) == [(0, 1), (2, 3)]
    assert cores.shares(range(6), 2, [{0, 1, 2, 3}, {2, 3}]) == [(0, 1, 2), (3, 4, 5)]


def test_where_a_device_has_fewer_cores_than_workers_the_parts_are_even() -> None:
    assert cores.shares(range(4), 2, [{0}, {0}]) == [(0, 1), (2, 3)]


@pytest.mark.parametrize(
    ("share", "count", "of_node", "expected"),
    [(8, 4, "", 8), (8, 4, "16", 4), (1, 2, "1", 1), (4, 2, "many", 4), (0, 2, "0", 1)],
)
def test_threads_follow_the_share_of_cores(share: int, count: int, of_node: str, expected: int) -> None:
    assert cores.threads(share, count, of_node) == expected


def test_the_machine_says_which_cores_are_next_to_a_device(tmp_path: Path) -> None:
    for minor, bus, local in ((0, "0000:3b:00.0", "0-3,8"), (1, "0000:86:00.0", "4-7")):
        told = tmp_path / "proc/driver/nvidia/gpus" / bus
        told.mkdir(parents=True)
        (told / "information").write_text(
            f"Model: \t A100\nGPU UUID:   GPU-{minor}\nDevice Minor: \t {minor}\n"
        )
        place = tmp_path / "sys/bus/pci/devices" / bus
        place.mkdir(parents=True)
        (place / "local_cpulist").write_text(f"{local}\n")
    where = (tmp_path / "proc", tmp_path / "sys")
    assert cores.near("0", *where) == {0, 1, 2, 3, 8} and cores.near("GPU-1", *where) == {4, 5, 6, 7}
    assert cores.near("7", *where) == cores.near("", *where) == cores.near("0", tmp_path, tmp_path) == set()


def test_the_kernels_lists() -> None:
    assert cores.listed("") == set() and cores.listed("0-1,5\n") == {0, 1, 5}
    with pytest.raises(ValueError, match="invalid"):
        cores.listed("x")
