"""The file of LSF's planner, lsb.allocation.plan.json: which jobs are to start where and when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lsf.emulator.core.state import ClusterState
from lsf.emulator.text import times

FILE = "lsb.allocation.plan.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRow:
    """A planned job with the slots that it will have on each host; times in Unix s."""

    id: int
    start: float
    end: float
    slots: Sequence[tuple[str, int]]


def rows(state: ClusterState) -> list[PlanRow]:
    """The job that slots are reserved for, if there is one."""
    kept = state.reservation
    job = None if kept is None else state.jobs.get(kept.job)
    if kept is None or job is None:
        return []
    pairs = zip(kept.placement.hosts.tolist(), kept.placement.slots.tolist(), strict=True)
    named = [(state.hosts.names[at], count) for at, count in pairs]
    return [PlanRow(id=job.id, start=kept.start, end=kept.start + job.limit_s, slots=named)]


def text(planned: Sequence[PlanRow], cluster: str, now: float, pid: int) -> str:
    """The whole file; every number is quoted but those of slots."""
    plans = [
        "    {\n"
        f'      "JOB_ID":"{cluster}@{row.id}",\n'
        f'      "RANK":"{rank}",\n'
        f'      "START_TIME":"{row.start:.0f}",\n'
        f'      "START_TIME_H":"{times.long(row.start)}",\n'
        f'      "FINISH_TIME":"{row.end:.0f}",\n'
        f'      "FINISH_TIME_H":"{times.long(row.end)}",\n'
        f'      "ALLOC":[\n{_hosts(row)}\n      ]\n'
        "    }"
        for rank, row in enumerate(planned, 1)
    ]
    inner = "[\n" + ",\n".join(plans) + "\n  ]" if plans else "[\n  ]"
    return (
        f'{{\n  "TIMESTAMP":"{times.long(now)}",\n  "CHILD_PID":"{pid}",\n  "NUM_PLANS":"{len(planned)}",\n'
        f'  "PLANS":{inner}\n}}\n'
    )


def _hosts(row: PlanRow) -> str:
    return ",\n".join(
        "        {\n"
        f'          "HOST":"{name}",\n'
        '          "RSRC":[\n            {\n              "NAME":"slots",\n'
        f'              "AMOUNT":{count}\n            }}\n          ]\n        }}'
        for name, count in row.slots
    )
