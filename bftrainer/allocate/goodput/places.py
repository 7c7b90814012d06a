"""Nodes for trainers whose numbers of workers are decided: on the fewest nodes, and few are moved."""

from __future__ import annotations

from collections.abc import Mapping

Nodes = tuple[int, ...]


def place(
    counts: Mapping[str, int], held: Mapping[str, Nodes], nodes: int, gpus: int, *, apart: bool = False
) -> dict[str, Nodes]:
    """The node of each worker of each trainer, those of a node in a row; `gpus` on each of `nodes`.

    Trainers whose number is unchanged stay, but where they are in the way of one that needs whole nodes. The
    largest are placed first, each where it fits most closely. With `apart`, no node has workers of two
    trainers of several nodes (Pollux's interference avoidance): one that would meet another gets fewer
    workers.
    """
    stay = {name: held[name] for name, count in counts.items() if count and len(held.get(name, ())) == count}
    new = {name: count for name, count in counts.items() if count and name not in stay}
    whole = sum(count // gpus for count in new.values())
    free = free_gpus(stay, nodes, gpus)
    empty = sum(left == gpus for left in free)
    while empty < whole:
        node = _cheapest_to_empty(stay, free, gpus)
        if node is None:
            break
        for name in [name for name, on in stay.items() if node in on]:
            new[name] = len(stay.pop(name))
        free = free_gpus(stay, nodes, gpus)
        empty = sum(left == gpus for left in free)
    found = dict(stay)
    taken = _spread_over(stay) if apart else set()
    for name in sorted(new, key=lambda name: (-new[name], name)):
        spread = [0 if node in taken else left for node, left in enumerate(free)]
        one = new[name] <= max(free) or sum(spread) <= max(free)
        room, most = (free, max(free)) if one else (spread, sum(spread))
        chosen = _closest(min(new[name], most), room, held.get(name, ()), gpus)
        if chosen:
            found[name] = chosen
        for node in chosen:
            free[node] -= 1
        if apart and len(set(chosen)) > 1:
            taken.update(chosen)
    return found


def _spread_over(held: Mapping[str, Nodes]) -> set[int]:
    """The nodes of trainers that are on several."""
    return {node for on in held.values() if len(set(on)) > 1 for node in on}


def free_gpus(held: Mapping[str, Nodes], nodes: int, gpus: int) -> list[int]:
    """GPUs of each node that nobody holds."""
    free = [gpus] * nodes
    for on in held.values():
        for node in on:
            free[node] -= 1
    return free


def _cheapest_to_empty(stay: Mapping[str, Nodes], free: list[int], gpus: int) -> int | None:
    """The node that is partly free, and whose trainers are on it alone, with the fewest workers to move."""
    tied = _spread_over(stay)
    options = [(gpus - left, node) for node, left in enumerate(free) if 0 < left < gpus and node not in tied]
    return min(options)[1] if options else None


def _closest(count: int, free: list[int], before: Nodes, gpus: int) -> Nodes:
    """Nodes for `count` workers: whole ones first, then the one that the rest fills most closely."""
    left = list(free)
    chosen: list[int] = []
    while len(chosen) < count:
        want = count - len(chosen)
        fits = [node for node, room in enumerate(left) if room >= min(want, gpus)]
        if fits:
            node = min(fits, key=lambda node: (left[node], node not in before, node))
        else:
            node = max(range(len(left)), key=lambda node: (left[node], node in before, -node))
        taken = min(want, left[node])
        chosen += [node] * taken
        left[node] -= taken
    return tuple(chosen)
