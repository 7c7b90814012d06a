"""Output of bqueues without -o."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

HEADER = "QUEUE_NAME      PRIO STATUS          MAX JL/U JL/P JL/H NJOBS  PEND   RUN  SUSP\n"
STATUS = "Open:Active"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRow:
    """A queue; limits of 0 are none, the counts are of slots."""

    name: str
    priority: int
    status: str = STATUS
    most: int = 0
    most_per_user: int = 0
    pend: int = 0
    run: int = 0
    susp: int = 0

    def fields(self) -> dict[str, str]:
        """Return its fields for -o and -json."""
        counts = {"NJOBS": self.pend + self.run + self.susp, "PEND": self.pend, "RUN": self.run}
        return {
            "QUEUE_NAME": self.name,
            "PRIORITY": str(self.priority),
            "STATUS": self.status,
            "MAX": str(self.most or ""),
            "JL_U": str(self.most_per_user or ""),
            "JL_P": "",
            "JL_H": "",
            **{name: str(count) for name, count in counts.items()},
            "SUSP": str(self.susp),
        }


def table(rows: Sequence[QueueRow]) -> str:
    """The default table."""
    lines = []
    for row in rows:
        limits = " ".join(f"{limit or '-':>4}" for limit in (row.most, row.most_per_user, 0, 0))
        counts = (row.pend + row.run + row.susp, row.pend, row.run, row.susp)
        numbers = " ".join(f"{count:>5}" for count in counts)
        lines.append(f"{row.name:<15} {row.priority:>3}  {row.status:<15}{limits} {numbers}\n")
    return HEADER + "".join(lines)


def details(row: QueueRow, policies: Sequence[str], limit_min: float, preempts: str, codes: str) -> str:
    """A queue as -l shows it. Only the words of the policies are known from a real one."""
    said = f"\nQUEUE: {row.name}\n  -- emulated\n\nPARAMETERS/STATISTICS\n"
    said += "PRIO NICE STATUS          MAX JL/U JL/P JL/H NJOBS  PEND   RUN SSUSP USUSP  RSV PJOBS\n"
    limits = " ".join(f"{limit or '-':>4}" for limit in (row.most, row.most_per_user, 0, 0))
    counts = (row.pend + row.run + row.susp, row.pend, row.run, row.susp, 0, 0, 0)
    said += (
        f"{row.priority:>3}    0  {row.status:<15}{limits} {' '.join(f'{count:>5}' for count in counts)}\n\n"
    )
    if limit_min:
        said += f"RUNLIMIT\n {limit_min:.1f} min\n\n"
    said += f"SCHEDULING POLICIES:  {'  '.join(policies)}\n\n"
    if preempts:
        said += f"PREEMPTION:  {preempts}\n\n"
    return said + (f"REQUEUE_EXIT_VALUES:  {codes}\n" if codes else "")
