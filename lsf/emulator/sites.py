"""Ready sites: a small one to try things on, and one of Summit's size and habits."""

from __future__ import annotations

from dataclasses import replace

from pydantic import TypeAdapter

from lsf.emulator.core.model import Host, OnPreempt, Queue, Site

SITE = TypeAdapter(Site)
SUMMIT_HOSTS = 4608
ROWS, CABINETS, IN_CABINET = "abcdefgh", 32, 18
HOUR_S = 3600.0
REQUEUED = 99
"""The exit code with which jobs of `killable` ask to be started again."""


def small(
    hosts: int = 4,
    *,
    slots: int = 42,
    gpus: int = 0,
    launch: int = 0,
    preempt: OnPreempt | None = OnPreempt.REQUEUE,
) -> Site:
    """Hosts h1, h2, ... with the queues `batch` and `killable`; jobs of batch preempt those of killable."""
    wide = len(str(hosts))
    named = tuple(Host(name=f"h{number:0{wide}d}", slots=slots, gpus=gpus) for number in range(1, hosts + 1))
    return Site(hosts=(*_launch(launch), *named), queues=_queues(preempt), default_queue="batch")


def summit(hosts: int = SUMMIT_HOSTS, *, preempt: OnPreempt | None = OnPreempt.REQUEUE) -> Site:
    """Hosts a01n01 to h32n18 with 42 slots and 6 GPUs each, and five launch hosts."""
    names = (
        f"{row}{cabinet:02d}n{place:02d}"
        for row in ROWS
        for cabinet in range(1, CABINETS + 1)
        for place in range(1, IN_CABINET + 1)
    )
    named = tuple(Host(name=name) for name, _ in zip(names, range(hosts), strict=False))
    queues = tuple(
        replace(queue, most_pending_per_user=100 if queue.name == "batch" else 0)
        for queue in _queues(preempt)
    )
    site = Site(hosts=(*_launch(5), *named), queues=queues, default_queue="batch", name="summit")
    return replace(site, cycle_s=5.0)


def _launch(count: int) -> tuple[Host, ...]:
    return tuple(Host(name=f"batch{n}", slots=160, gpus=0, launch=True) for n in range(1, count + 1))


def _queues(preempt: OnPreempt | None) -> tuple[Queue, ...]:
    batch = Queue(name="batch", priority=50, run_limit_s=24 * HOUR_S)
    killable = Queue(
        name="killable", priority=10, run_limit_s=24 * HOUR_S, requeue_codes=frozenset({REQUEUED})
    )
    if preempt is None:
        return (batch, killable)
    return (replace(batch, preempts=("killable",)), replace(killable, on_preempt=preempt))
