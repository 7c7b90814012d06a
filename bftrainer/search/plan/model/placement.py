"""Places each trial's workers on nodes (RubberBand, section 4.4, algorithm 3).

The workers of a trial stand together: on one node if they fit there, else on as few nodes as possible, which
are the trial's alone. Trials are packed, the largest first. A trial that stays as large as it was stays where
it is, unless a larger one needs its place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bftrainer.errors import BftrainerError

Placement = Mapping[str, Mapping[str, int]]
"""Trial -> node -> workers of the trial on it."""


class PlacementError(BftrainerError, ValueError):
    """The trials do not fit on the nodes. The message says how many workers are too many."""


def nodes_needed(trials: int, workers: int, node_workers: int) -> int:
    """How many nodes hold so many trials with so many workers each."""
    if workers > node_workers:
        return trials * -(-workers // node_workers)
    return -(-trials // (node_workers // workers))


@dataclass(slots=True)
class _Board:
    """A placement that is being made."""

    size: int
    free: dict[str, int]
    placed: dict[str, dict[str, int]]

    def take(self, trial: str, where: Mapping[str, int]) -> None:
        for node, workers in where.items():
            self.free[node] -= workers
        self.placed[trial] = dict(where)

    def remove(self, trial: str) -> None:
        for node, workers in self.placed.pop(trial).items():
            self.free[node] += workers

    def fit(self, workers: int) -> dict[str, int] | None:
        """The free place in which least is left over; None if there is none."""
        if workers <= self.size:
            rooms = [(room, node) for node, room in self.free.items() if room >= workers]
            return {min(rooms)[1]: workers} if rooms else None
        whole = sorted(node for node, room in self.free.items() if room == self.size)
        needed = -(-workers // self.size)
        if len(whole) < needed:
            return None
        shares = dict.fromkeys(whole[: needed - 1], self.size)
        return {**shares, whole[needed - 1]: workers - self.size * (needed - 1)}


def place(
    wanted: Mapping[str, int],
    nodes: Mapping[str, int],
    last: Placement,
    reserved: frozenset[str] = frozenset(),
) -> Placement:
    """Place the trials of `wanted` (trial -> workers) on `nodes` (name -> workers that fit, alike for all).

    `last` is the placement so far. Trials in `reserved` are on their way to their place in it, which stays
    theirs; they must be wanted as they are there. Pure: the same question has the same answer.

    Raises:
        PlacementError: the nodes differ in size, a trial wants no worker, a reserved trial's place is gone,
            or the trials do not fit.
    """
    board = _board(wanted, nodes)
    for trial in sorted(reserved):
        if (
            trial not in last
            or sum(last[trial].values()) != wanted.get(trial)
            or last[trial].keys() - nodes.keys()
        ):
            raise PlacementError(f"{trial} is on its way to a place that is gone; wait until it has arrived")
        board.take(trial, last[trial])
    for trial in sorted(wanted):  # what need not change stays
        if trial not in reserved and _stays(last.get(trial, {}), wanted[trial], board):
            board.take(trial, last[trial])
    missing = sorted(wanted.keys() - board.placed.keys(), key=lambda t: (-wanted[t], t))
    while missing:
        trial = missing.pop(0)
        where = board.fit(wanted[trial])
        if where is None:
            displaced = _make_room(trial, wanted, board, reserved)
            missing = sorted({*missing, *displaced}, key=lambda t: (-wanted[t], t))
            where = board.fit(wanted[trial])
        if where is None:
            raise PlacementError(
                f"{trial} finds no room for {wanted[trial]} workers on {len(nodes)} nodes with {board.size} "
                "places each; take more nodes or fewer workers"
            )
        board.take(trial, where)
    return {trial: board.placed[trial] for trial in sorted(board.placed)}


def _board(wanted: Mapping[str, int], nodes: Mapping[str, int]) -> _Board:
    sizes = set(nodes.values())
    if len(sizes) != 1 or min(sizes) < 1:
        raise PlacementError(f"nodes with {sorted(sizes)} places; trials are placed on nodes of one size")
    few = [trial for trial, workers in wanted.items() if workers < 1]
    if few:
        raise PlacementError(f"{few[0]} wants {wanted[few[0]]} workers; give 1 or more, or leave it out")
    return _Board(sizes.pop(), dict(nodes), {})


def _stays(where: Mapping[str, int], workers: int, board: _Board) -> bool:
    """Whether a trial's last place still suits: of its size, together, and free."""
    if sum(where.values()) != workers or where.keys() - board.free.keys():
        return False
    return len(where) <= -(-workers // board.size) and all(board.free[n] >= w for n, w in where.items())


def _make_room(trial: str, wanted: Mapping[str, int], board: _Board, reserved: frozenset[str]) -> list[str]:
    """Displace smaller trials from the nodes on which most is free, and return them."""
    mine, displaced = wanted[trial], []
    room = min(mine, board.size)
    short = -(-mine // board.size) - (
        sum(free == board.size for free in board.free.values()) if mine > board.size else 0
    )
    for node in sorted(board.free, key=lambda n: (-board.free[n], n)):
        if short <= 0:
            break
        if mine > board.size and board.free[node] == board.size:
            continue
        leaving = _smallest_to_leave(
            node, board.size if mine > board.size else room, mine, wanted, board, reserved
        )
        if leaving:
            for other in leaving:
                board.remove(other)
            displaced += leaving
            short -= 1
    return displaced


def _smallest_to_leave(
    node: str, room: int, mine: int, wanted: Mapping[str, int], board: _Board, reserved: frozenset[str]
) -> list[str]:
    """The trials smaller than `mine` that leave a node so that `room` is free; none if they are too few."""
    there = sorted(
        (wanted[t], t)
        for t, where in board.placed.items()
        if node in where and t not in reserved and wanted[t] < mine
    )
    free, leaving = board.free[node], []
    for _, other in there:
        if free >= room:
            break
        free += board.placed[other][node]
        leaving.append(other)
    return leaving if free >= room else []
