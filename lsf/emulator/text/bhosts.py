"""Output of bhosts without -o."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

HEADER = "HOST_NAME          STATUS          JL/U    MAX  NJOBS    RUN  SSUSP  USUSP    RSV\n"
NUMBERS = ("MAX", "NJOBS", "RUN", "SSUSP", "USUSP", "RSV")
LONG = "STATUS           CPUF  JL/U    MAX  NJOBS    RUN  SSUSP  USUSP    RSV DISPATCH_WINDOW\n"
LOADS = "             r15s   r1m  r15m    ut    pg    io   ls    it   tmp   swp   mem   slots\n"
WIDTHS = (5, 5, 5, 5, 5, 5, 4, 5, 5, 5, 5, 7)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRow:
    """A host with its numbers in the order of `NUMBERS`; `status` has its reason."""

    name: str
    status: str
    numbers: tuple[int, ...]

    @property
    def plain_status(self) -> str:
        """Without the reason: a table without -w says just `closed`."""
        return self.status.partition("_")[0]

    def fields(self) -> dict[str, str]:
        """Return its fields for -o and -json."""
        fixed = {"HOST_NAME": self.name, "STATUS": self.status, "JL_U": ""}
        return fixed | {key: str(value) for key, value in zip(NUMBERS, self.numbers, strict=True)}


def table(rows: Sequence[HostRow], *, wide: bool = False) -> str:
    """The default table, or that of -w."""
    return HEADER + "".join(
        f"{row.name:<18} {row.status if wide else row.plain_status:<13} {'-':>3} "
        + " ".join(f"{number:>6}" for number in row.numbers)
        + "\n"
        for row in rows
    )


def block(row: HostRow, factor: float, total: Sequence[str], reserved: Sequence[str]) -> str:
    """One host of -l; `total` and `reserved` are its load, twelve values each."""
    counts = " ".join(f"{number:>6}" for number in row.numbers)
    lines = [
        f"HOST  {row.name}\n",
        LONG,
        f"{row.status:<15}{factor:>6.2f} {'-':>5} {counts} {'-':>6}\n",
        "CURRENT LOAD USED FOR SCHEDULING:\n",
        LOADS,
    ]
    for title, values in (("Total", total), ("Reserved", reserved)):
        cells = " ".join(f"{value:>{wide}}" for value, wide in zip(values, WIDTHS, strict=True))
        lines.append(f"{title:<11} {cells}\n")
    return "".join(lines)
