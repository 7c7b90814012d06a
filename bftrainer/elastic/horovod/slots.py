"""Horovod's names for workers: a host, which is a node and its start, and the worker's number there. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_LAST_SCOPE = re.compile(r"cross_(\d+)_process_set")
"""Scope that a worker finishes last when it connects: the workers with its number on all hosts."""


def workers_of(hosts: Sequence[str], slots: Sequence[int] = ()) -> tuple[str, ...]:
    """The workers of hosts, each with its number in `slots`; without these, one each."""
    counts = slots or [1] * len(hosts)
    return tuple(
        worker_at(host, slot) for host, count in zip(hosts, counts, strict=True) for slot in range(count)
    )


def worker_at(host: str, slot: int) -> str:
    """The name of a host's worker with this number."""
    return f"{host}:{slot}"


def host_of(worker: str) -> str:
    """The host of a worker."""
    return worker.rpartition(":")[0] or worker


def hosts_of(workers: Iterable[str]) -> list[str]:
    """The hosts of workers, each once, in their order."""
    return list(dict.fromkeys(map(host_of, workers)))


def slots_of(workers: Iterable[str]) -> dict[str, int]:
    """Host -> how many of these workers are there, in their order."""
    found: dict[str, int] = {}
    for worker in workers:
        found[host_of(worker)] = found.get(host_of(worker), 0) + 1
    return found


def whole(workers: Iterable[str], target: Iterable[str]) -> list[str]:
    """Those workers whose hosts have all there that `target` names: they come and go together."""
    here, wanted = list(workers), slots_of(target)
    there = slots_of(here)
    return [worker for worker in here if there[host_of(worker)] == wanted.get(host_of(worker))]


def finisher(scope: str, number: int, workers: Sequence[str]) -> str | None:
    """The worker that has finished a scope; None where that is not the last, or names none of them."""
    found = _LAST_SCOPE.match(scope)
    if found is None:
        return None
    peers = [worker for worker in workers if worker.endswith(f":{int(found[1])}")]
    return peers[number] if 0 <= number < len(peers) else None
