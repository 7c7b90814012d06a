"""Where nodes lie side by side, as `--contiguous` wants them. Pure.

Slurm numbers nodes as its configuration names them, and shows them in this order. A node that a job cannot
use is a gap, whatever the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator


def stretch(
    line: Iterable[str],
    usable: Collection[str],
    *,
    count: int,
    cpus: int,
    required: Collection[str],
    cpus_of: Callable[[str], int],
    price_of: Callable[[str], int],
) -> set[str] | None:
    """The cheapest nodes of `line`, the nodes of the machine in their order, that lie side by side; None if
    there are none such.

    They are `usable`, at least `count`, have so many `cpus` together, and all that are `required`. Of several
    stretches at one price the first is meant.
    """
    best: tuple[int, list[str]] | None = None
    for run in _runs(line, usable):
        if len(run) < count or not set(required).issubset(run):
            continue
        must = [i for i, name in enumerate(run) if name in required]
        has, prices = [cpus_of(name) for name in run], [price_of(name) for name in run]
        first = total = price = 0
        for last in range(len(run)):
            total, price = total + has[last], price + prices[last]
            while (  # what it begins with is not needed
                last - first >= count and total - has[first] >= cpus and not (must and must[0] <= first)
            ):
                total, price, first = total - has[first], price - prices[first], first + 1
            enough = last - first + 1 >= count and total >= cpus and (not must or must[-1] <= last)
            if enough and (best is None or price < best[0]):
                best = price, run[first : last + 1]
    return None if best is None else set(best[1])


def _runs(line: Iterable[str], usable: Collection[str]) -> Iterator[list[str]]:
    """The usable nodes that have no gap between them."""
    run: list[str] = []
    for name in line:
        if name in usable:
            run.append(name)
        elif run:
            yield run
            run = []
    if run:
        yield run
