"""Output of bhosts -gpu and lshosts -gpu: one GPU a line, the host's name in its first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

TITLES = ("HOST_NAME", "GPU_ID", "MODEL", "MUSED", "MRSV", "NJOBS", "RUN", "SUSP", "RSV")
WIDTHS = (20, 6, 20, 9, 9, 6, 6, 6, 6)
STATIC = ("HOST_NAME", "gpu_id", "gpu_model", "gpu_driver", "gpu_factor", "numa_id")
STATIC_WIDTHS = (11, 6, 15, 12, 12, 12)
NARROW = 15
"""Characters of a model that are shown without -w."""
DRIVER, FACTOR = "396.37", "7.0"


class BatchRow(NamedTuple):
    """A GPU, and how many jobs that run or are suspended have it."""

    host: str
    id: int
    model: str
    run: int
    susp: int


def bhosts(rows: Sequence[BatchRow], *, wide: bool) -> str:
    """GPUs with their jobs."""
    cells = (
        (
            *(row.host, str(row.id), row.model if wide else row.model[:NARROW], "0M", "0M"),
            *(str(row.run + row.susp), str(row.run), str(row.susp), "0"),
        )
        for row in rows
    )
    return "".join(_lines([TITLES, *cells], WIDTHS))


def lshosts(rows: Sequence[tuple[str, int, str]], *, wide: bool) -> str:
    """GPUs as they are; the second half of a host's is next to its second socket."""
    cells = (
        (host, str(number), model if wide else model[:NARROW], DRIVER, FACTOR, "0" if number < 3 else "8")
        for host, number, model in rows
    )
    return "".join(_lines([STATIC, *cells], STATIC_WIDTHS))


def _lines(rows: Sequence[Sequence[str]], widths: Sequence[int]) -> Iterator[str]:
    before = ""
    for name, *cells in rows:
        shown = "" if name == before else name
        before = name
        right = " ".join(f"{cell:>{wide}}" for cell, wide in zip(cells, widths[1:], strict=True))
        yield f"{shown:<{widths[0]}} {right}\n"
