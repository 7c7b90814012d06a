"""Times the search for main jobs' nodes, where users make their waiting jobs as costly as they can.

    python benchmarks/slurm_queue.py

All 5000 nodes are held by pilots, and ten users have 500 waiting jobs each: as many as are tried at one poll.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable

from bftrainer.schedulers.slurm import values, view
from bftrainer.schedulers.slurm.own_jobs import SlurmOwnJobs
from bftrainer.schedulers.slurm.rows import NodeRow, Partition, SlurmJobRow, SlurmMachine

NODES, USERS, JOBS = 5000, 10, 500
NAMES = [f"n{i:04}" for i in range(NODES)]
NOW = 1e9
OURS = SlurmOwnJobs("abcdef01", "bftrainer", None, "backfill", frozenset({"batch"}))
ROW = NodeRow("", "ALLOCATED", frozenset(), ("batch", "backfill"), ("f1", "f2"), "", (), 64, 256_000)
KINDS: dict[str, Callable[[int], dict[str, object]]] = {
    "alike": lambda i: {},
    "of many sizes": lambda i: {"cpus": 1 + i % 60, "memory_mb": i + 1},
    "of many limits": lambda i: {"limit_s": 60.0 + i},
    "that exclude nodes": lambda i: {"excluded": f"n[0000-{i % 4900:04},{4950 + i % 50:04}]"},
    "that fit nowhere": lambda i: {"excluded": f"n[0000-{4990 + i % 9:04}],x{i}", "count": 100},
    "of odd constraints": lambda i: {"features": f"f1&f2|f{i}|f1&({'f2|' * (i % 50)}f1)"},
    "that are planned": lambda i: {"planned": tuple(NAMES[:4000]), "start": NOW + i, "count": 4000},
}


def job(number: int, user: str, given: dict[str, object]) -> SlurmJobRow:
    """A waiting job."""
    values_: dict[str, object] = {
        **dict.fromkeys(("required", "excluded", "features", "reservation", "name"), ""),
        "id": str(number),
        "tasks": 1,
        "partitions": ("batch",),
        "user": user,
        "state": "PENDING",
        "start": None,
        "end": None,
        "limit_s": 3600.0,
        "count": 1,
        "planned": (),
        "nodes": (),
        "priority": 1000,
        "cpus": 1,
        "memory_mb": 1,
        "gpus": 0,
        "all_cpus": 1,
        "shares": False,
        "reason": "Priority",
        **given,
    }
    return SlurmJobRow(**values_)  # type: ignore[arg-type]


def main() -> None:
    """Print a line for each kind of job."""
    argparse.ArgumentParser(description=__doc__.partition("\n")[0]).parse_args()
    nodes = {name: NodeRow(name, *(getattr(ROW, field) for field in ROW.__slots__[1:])) for name in NAMES}
    partitions = {
        "batch": Partition("batch", 10, up=True, default=True, max_s=None),
        "backfill": Partition("backfill", 1, up=True, default=False, max_s=None),
    }
    held = {"state": "RUNNING", "partitions": ("backfill",), "end": NOW + 3600}
    pilots = [
        job(100_000 + i, "u", {**held, "nodes": (name,), "name": f"bftrainer-abcdef01-{i:032x}"})
        for i, name in enumerate(NAMES)
    ]
    print("jobs                  CPU s    claims  memory so far (MB)")
    for kind, given in KINDS.items():
        jobs = [job(i, f"user{i // JOBS}", given(i)) for i in range(USERS * JOBS)]
        values.names.cache_clear()
        began = time.thread_time()
        seen = view.interpret(SlurmMachine(nodes, partitions, ()), [*pilots, *jobs], OURS, now=NOW)
        took, claims = time.thread_time() - began, len(seen.snapshot.claims)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        print(f"{kind:20}  {took:5.2f}  {claims:8}  {memory:8}", flush=True)


if __name__ == "__main__":
    main()
