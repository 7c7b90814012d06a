"""Single GPUs of hosts (`share: gpu`): which may be ours, and what of them main jobs claim. Pure.

Only hosts that no main job uses are ours. There each GPU `h1:0`, `h1:1`, ... has a pilot of its own, with an
even part of the host's slots. Which device a number is, LSF says when the pilot starts.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from bftrainer.model.gpus import gpus_of
from bftrainer.model.machine import Claim, Slot
from bftrainer.schedulers.lsf.rows import HostRow
from bftrainer.schedulers.shared.claims import Claims

IN_USE = "in use"
NO_SLOT = "its host has fewer slots than GPUs"
STOPPED = "our pilot there is"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPlaces:
    """The GPUs and slots of a host, by their use.

    Attributes:
        count: Its GPUs.
        held: GPUs of our pilots that run.
        stopped: GPUs of those that have slots and do not run -> what LSF says of them.
        waiting: GPUs that our pilots wait for.
        slots: What all these pilots have.
        why: Why nothing of the host is ours; "" if it may be.
        shut: Why no more of it may be; "" if more may.
    """

    count: int
    held: Collection[str] = ()
    stopped: Mapping[str, str]
    waiting: Collection[str] = ()
    slots: int = 0
    why: str = ""
    shut: str = ""


def slots_of(slots: int, count: int, gpu: str) -> int:
    """The slots of a GPU's pilot: those of the host are shared out evenly, the first ones get what is over.
    So the pilots of all its GPUs leave none, on which LSF would start a small job that costs us the host."""
    number = Slot.of(gpu).gpu or 0
    return slots // count + (number < slots % count)


def reasons(row: HostRow, here: HostPlaces) -> dict[str, str]:
    """Each GPU of a host -> why it is not ours; "" if it is. Slots that none of our pilots has are another's,
    and nothing more is ours beside it; what bhosts counts may be a moment older than what bjobs shows, so
    pilots that run stay until bjobs shows whose they are."""
    names = gpus_of(row.name, here.count)
    if here.why:
        return dict.fromkeys(names, here.why)
    shut = here.shut or (IN_USE if row.active > here.slots else "")
    free = row.slots - max(row.active, here.slots)
    found = {}
    for name in sorted(names, key=lambda gpu: gpu not in here.waiting):  # pilots that wait come first
        slots = slots_of(row.slots, here.count, name)
        if name in here.held:
            found[name] = ""
        elif name in here.stopped:
            found[name] = f"{STOPPED} {here.stopped[name]}"
        elif shut or not slots or slots > free:
            found[name] = shut or (IN_USE if slots else NO_SLOT)
        else:
            found[name] = ""
            free -= slots
    return {name: found[name] for name in names}


def by_gpu(
    wanted: Claims, held: Mapping[str, Collection[str]], free: Collection[str], kept: Mapping[str, str]
) -> tuple[Claims, dict[str, str]]:
    """Return main jobs' claims to whole hosts, in GPUs: each host that one is to have costs all its pilots,
    so those hosts go that have fewest. `held` are the GPUs of our pilots by host. Also returns host -> the
    job that it is for: those that go now, and of the `free` ones what earlier polls have `kept` for jobs that
    have not started. No pilots are to go there, also to GPUs that never had one."""
    going: dict[str, str] = {}
    claims: list[Claim] = []
    for claim in wanted.claims:
        hosts = sorted(claim.nodes - going.keys(), key=lambda host: (len(held[host]), host))
        for host in hosts[: claim.count]:
            going[host] = claim.job
            claims += [Claim(job=claim.job, nodes=frozenset({gpu}), count=1) for gpu in sorted(held[host])]
    taken = {host: job for host, job in kept.items() if host in free and job in wanted.ready}
    return replace(wanted, claims=tuple(claims), taken=taken), taken | going
