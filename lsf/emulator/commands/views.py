"""bslots, bhosts, bqueues, jobstat, lsid and lshosts: what only shows the cluster."""

from __future__ import annotations

from collections.abc import Sequence

from lsf.emulator.commands import gpus
from lsf.emulator.commands.context import FAILED, Answer, Call, failed
from lsf.emulator.commands.options import limit_s, selects_compute, split
from lsf.emulator.core.model import ENDED, WAITING, Queue, State
from lsf.emulator.core.usage import Window, cumulative, statuses, usage, windows
from lsf.emulator.text import about, bhosts, bqueues, bslots, columns, job_fields, jobstat

HOST_FIELDS = {
    "host_name": 20, "status": 15, "jl_u": 8, "max": 8, "njobs": 8, "run": 8, "ssusp": 8, "ususp": 8,
    "rsv": 8, "ngpus": 5,
}  # fmt: skip
MOST_KEPT = 20
HOST_ALIASES = {"hname": "host_name", "stat": "status", "jlu": "jl_u", "ng": "ngpus"}
QUEUE_FIELDS = {
    "queue_name": 15, "priority": 10, "status": 12, "max": 10, "jl_u": 10, "jl_p": 10, "jl_h": 10,
    "njobs": 10, "pend": 10, "run": 10, "susp": 10,
}  # fmt: skip
QUEUE_ALIASES = {"qname": "queue_name", "prio": "priority", "stat": "status", "jlu": "jl_u"}
LOAD = ("0.0", "0.0", "0.0", "0%", "0.0", "0", "0", "0", "0M", "0M", "0M")


def bslots_command(call: Call) -> Answer:
    """Unused slots and how long."""
    given, _ = split(call.words, {"n", "R", "W"}, {"l"}, command="bslots")
    found = _windows(call, launch=not selects_compute(given.get("R", "")))
    if not found:
        return Answer(out=bslots.NONE)
    least_s = limit_s(given["W"]) if "W" in given else 0.0
    least = int(given.get("n", "0"))
    shown = [
        window
        for window in (found if call.lsf.manners.disjoint else cumulative(found))
        if (window.length_s is None or window.length_s >= least_s) and int(window.slots.sum()) >= least
    ]
    if not shown:
        return Answer(out=bslots.NO_SUCH, code=FAILED)
    if "l" not in given:
        return Answer(out=bslots.rows([(int(window.slots.sum()), window.length_s) for window in shown]))
    names = call.lsf.cluster.state.hosts.names
    return Answer(
        out=bslots.blocks(
            [
                (
                    int(window.slots.sum()),
                    window.length_s,
                    {name: int(count) for name, count in zip(names, window.slots, strict=True) if count},
                )
                for window in shown
            ]
        )
    )


def _windows(call: Call, *, launch: bool) -> list[Window]:
    """The windows now, or older ones where the manners say so."""
    lsf, state = call.lsf, call.lsf.cluster.state
    if lsf.manners.no_windows or not any(queue.backfill for queue in state.site.queues):
        return []
    seen = lsf.windows.get(launch)
    if seen is not None and call.now - seen[0] < lsf.manners.stale_s:
        return seen[1]
    found = windows(state, call.now, launch=launch)
    lsf.windows[launch] = (call.now, found)
    return found


def bhosts_command(call: Call) -> Answer:
    """Hosts and the slots of jobs on them, or their GPUs; the text of thousands is kept until something
    changes."""
    kept, version = call.lsf.hosts.get(call.words), call.lsf.cluster.state.version
    if kept is None or kept[0] != version:
        if len(call.lsf.hosts) > MOST_KEPT:
            call.lsf.hosts.clear()
        answer = gpus.bhosts(call) if "-gpu" in call.words else _bhosts(call)
        kept = call.lsf.hosts[call.words] = (version, answer)
    return kept[1]


def _bhosts(call: Call) -> Answer:
    flags = {"w", "l", "e", "a", "X", "x", "s", "noheader", "json"}
    given, names = split(call.words, {"R", "o"}, flags, command="bhosts")
    state = call.lsf.cluster.state
    known = state.hosts.index
    if unknown := [name for name in names if name not in known]:
        return failed(
            "".join(f"{name}: Bad host name, host group name or cluster name\n" for name in unknown)
        )
    places = [known[name] for name in names] or list(range(len(state.hosts.names)))
    if selects_compute(given.get("R", "")):
        places = [at for at in places if state.hosts.compute[at]]
    found = usage(state)
    kinds = (state.hosts.slots, found.jobs, found.run, found.ssusp, found.ususp, found.reserved)
    numbers = list(zip(*(kind.tolist() for kind in kinds), strict=True))
    shown = statuses(state, found)
    rows = [
        bhosts.HostRow(name=state.hosts.names[at], status=shown[at], numbers=numbers[at]) for at in places
    ]
    if "o" in given:
        fields = [
            row.fields() | {"NGPUS": str(state.hosts.all[at].gpus)}
            for at, row in zip(places, rows, strict=True)
        ]
        return _custom(call, given, fields, HOST_FIELDS, HOST_ALIASES, "HOSTS")
    if "l" in given:
        blocks = [
            bhosts.block(
                row, 12.5, (*LOAD, str(row.numbers[0] - row.numbers[1])), (*LOAD, str(row.numbers[5]))
            )
            for row in rows
        ]
        return Answer(out="\n".join(blocks))
    return Answer(out=bhosts.table(rows, wide="w" in given))


def _custom(
    call: Call,
    given: dict[str, str],
    rows: Sequence[columns.Row],
    widths: dict[str, int],
    aliases: dict[str, str],
    counted: str,
) -> Answer:
    """Rows as -o wants them."""
    try:
        form = columns.parse(given["o"], widths, aliases)
    except columns.FormatError as error:
        return failed(f"{error}\n")
    if "json" in given:
        if "noheader" in given:
            return failed("-json conflicts with -noheader\n")
        command = "bhosts" if counted == "HOSTS" else "bqueues"
        return Answer(out=columns.as_json(command, counted, form, rows))
    return Answer(out=columns.table(form, rows, header="noheader" not in given))


def bqueues_command(call: Call) -> Answer:
    """Queues and the slots of their jobs."""
    given, names = split(call.words, {"o", "m", "u"}, {"w", "l", "noheader", "json"}, command="bqueues")
    state = call.lsf.cluster.state
    if unknown := [name for name in names if name not in state.queues]:
        return failed("".join(f"{name}: No such queue\n" for name in unknown))
    queues = [queue for queue in state.site.queues if not names or queue.name in names]
    queues.sort(key=lambda queue: -queue.priority)
    rows = [_queue_row(call, queue) for queue in queues]
    if "o" in given:
        fields = [row.fields() for row in rows]
        return _custom(call, given, fields, QUEUE_FIELDS, QUEUE_ALIASES, "QUEUES")
    if "l" in given:
        return Answer(
            out="".join(
                bqueues.details(row, _policies(queue), queue.run_limit_s / 60, *_preemption(call, queue))
                for row, queue in zip(rows, queues, strict=True)
            )
        )
    return Answer(out=bqueues.table(rows))


def _queue_row(call: Call, queue: Queue) -> bqueues.QueueRow:
    counts = dict.fromkeys(State, 0)
    for job in call.lsf.cluster.state.active.values():
        if job.request.queue == queue.name:
            counts[job.state] += job_fields.slots(job)
    return bqueues.QueueRow(
        name=queue.name,
        priority=queue.priority,
        status=bqueues.STATUS if queue.open else "Closed:Active",
        most=queue.most_slots,
        most_per_user=queue.most_slots_per_user,
        pend=sum(counts[kind] for kind in WAITING),
        run=counts[State.RUN],
        susp=counts[State.USUSP] + counts[State.SSUSP],
    )


def _policies(queue: Queue) -> list[str]:
    return [*(["BACKFILL"] if queue.backfill else []), *(["EXCLUSIVE"] if queue.exclusive else [])]


def _preemption(call: Call, queue: Queue) -> tuple[str, str]:
    by = [other.name for other in call.lsf.cluster.state.site.queues if queue.name in other.preempts]
    words = [f"PREEMPTIVE[{' '.join(queue.preempts)}]"] if queue.preempts else []
    words += [f"PREEMPTABLE[{' '.join(by)}]"] if by else []
    return " ".join(words), " ".join(map(str, sorted(queue.requeue_codes)))


def jobstat_command(call: Call) -> Answer:
    """Summit's own view: running, eligible and blocked jobs."""
    given, _ = split(call.words, {"u"}, set(), command="jobstat")
    state = call.lsf.cluster.state
    rows: dict[str, list[jobstat.StatRow]] = {"running": [], "eligible": [], "blocked": []}
    for job in state.active.values():
        if job.state in ENDED or given.get("u", job.request.user) not in (job.request.user, "all"):
            continue
        waits = job.state in WAITING
        reason = state.blocked.get(job.id, "")
        if job.state is State.PSUSP:
            reason = "The job was suspended by the user while pending"
        kind = "running" if not waits else "blocked" if reason else "eligible"
        rows[kind].append(
            jobstat.StatRow(
                id=job.id,
                user=job.request.user,
                project=job.request.project,
                nodes=_nodes(job.request.demand.slots, job.request.demand.per_host),
                seconds=job.left_s(state.now) if not waits else job.limit_s,
                when=job.submitted if job.start is None else job.start,
                name=job.request.name or "Not_Specified",
                reason=reason,
            )
        )
    found = usage(state)
    used = int(((found.run + found.ususp > 0) & state.hosts.compute).sum())
    machine = int(state.hosts.compute.sum())
    return Answer(out=jobstat.text(rows["running"], rows["eligible"], rows["blocked"], used, machine))


def _nodes(slots: int, per_host: int) -> int:
    return -(-slots // per_host) if per_host else 1


def lsid_command(call: Call) -> Answer:
    """Version and cluster."""
    state = call.lsf.cluster.state
    return Answer(out=about.lsid(state.site.name, call.host))


def lshosts_command(call: Call) -> Answer:
    """Print the types and sizes of hosts."""
    if "-gpu" in call.words:
        return gpus.lshosts(call)
    _, names = split(call.words, {"R"}, {"w", "l"}, command="lshosts")
    hosts = call.lsf.cluster.state.hosts.all
    return Answer(
        out=about.lshosts(
            [
                (
                    *(host.name, "LINUXPPC64LE", "POWER9", "250.0", str(host.slots), "605.4G", "-", "Yes"),
                    *("2", "21", "4", "-"),
                )
                for host in hosts
                if not names or host.name in names
            ]
        )
    )
