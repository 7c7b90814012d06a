"""bhosts -gpu and lshosts -gpu: the GPUs of hosts."""

from __future__ import annotations

from collections import Counter

from lsf.emulator.commands.context import Answer, Call, failed
from lsf.emulator.commands.options import selects_compute, split
from lsf.emulator.core.model import Host, State
from lsf.emulator.text import gpus as text


def bhosts(call: Call) -> Answer:
    """The GPUs of hosts and the jobs on them."""
    hosts = _hosts(call, "bhosts")
    if isinstance(hosts, Answer):
        return hosts
    state = call.lsf.cluster.state
    run, susp = Counter[tuple[str, int]](), Counter[tuple[str, int]]()
    for job in state.started():
        kind = run if job.state is State.RUN else susp
        kind.update((state.hosts.names[at], number) for at, own in job.devices.items() for number in own)
    rows = [
        text.BatchRow(host.name, number, host.gpu_model, run[host.name, number], susp[host.name, number])
        for host in hosts
        for number in range(host.gpus)
    ]
    return Answer(out=text.bhosts(rows, wide="-w" in call.words))


def lshosts(call: Call) -> Answer:
    """The GPUs of hosts as the daemon of each host has found them."""
    hosts = _hosts(call, "lshosts")
    if isinstance(hosts, Answer):
        return hosts
    rows = [(host.name, number, host.gpu_model) for host in hosts for number in range(host.gpus)]
    return Answer(out=text.lshosts(rows, wide="-w" in call.words))


def _hosts(call: Call, command: str) -> list[Host] | Answer:
    """The hosts that are asked for and have GPUs."""
    given, names = split(call.words, {"R"}, {"gpu", "w", "X"}, command=command)
    hosts = call.lsf.cluster.state.hosts
    if unknown := [name for name in names if name not in hosts.index]:
        return failed(
            "".join(f"{name}: Bad host name, host group name or cluster name\n" for name in unknown)
        )
    compute = selects_compute(given.get("R", ""))
    return [
        host
        for at, host in enumerate(hosts.all)
        if host.gpus and (not names or host.name in names) and (not compute or hosts.compute[at])
    ]
