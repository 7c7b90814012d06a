"""Findings on LSF's answers: what was understood, and the assumptions that do not hold. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import inf

from bftrainer.model.finding import Finding, ok, warning, wrong
from bftrainer.model.text import duration
from bftrainer.schedulers.lsf import values
from bftrainer.schedulers.lsf.check.single_gpus import why_not
from bftrainer.schedulers.lsf.rows import BackfillWindow, Gpus, HostRow, LsfJobRow, QueueRow
from bftrainer.schedulers.lsf.text.queues_text import LsfIdentity
from bftrainer.schedulers.lsf.view import HELD, IDLE
from bftrainer.settings.values import Settings

KNOWN = (
    IDLE
    | HELD
    | {
        *("unavail", "unreach", "closed_Adm", "closed_Lock", "closed_LockM", "closed_LIM", "closed_Wind"),
        *("closed_EGO", "closed_RC"),
    }
)
"""Statuses of which we know what they mean."""
OLDEST = (10, 1)
MOST_NAMED = 5
AHEAD_S = 120.0


def version_finding(found: LsfIdentity) -> Finding:
    """Return the identity of the LSF that answers."""
    check, said = (
        "lsf",
        f"version {found.version or '?'}, cluster {found.cluster}, master {found.master or '?'}",
    )
    numbers = tuple(int(part) for part in found.version.split(".")[:2]) if found.version else ()
    if numbers < OLDEST:
        return warning(check, said, "the parsers were tested on outputs of 10.1; compare all that follows")
    return ok(check, said)


def host_findings(hosts: Mapping[str, HostRow], launch: Sequence[str]) -> list[Finding]:
    """Count the hosts by state, and name the states that we do not understand."""
    check = "lsf bhosts"
    mine = [row for row in hosts.values() if not values.is_launch(row.name, launch)]
    states = ", ".join(f"{many} {name}" for name, many in Counter(row.status for row in mine).most_common())
    slots = Counter(row.slots for row in mine)
    sizes = ", ".join(f"{many} with {size}" for size, many in slots.most_common(MOST_NAMED))
    idle = sum(row.status in IDLE and not row.active for row in mine)
    reserved = sum(bool(row.reserved) and not row.active for row in mine)
    found = [
        ok(
            check,
            f"{len(mine)} hosts ({states}); slots: {sizes}; {idle} have no job, of which {reserved} "
            "are reserved "
            f"for one; {len(hosts) - len(mine)} launch hosts left out",
        )
    ]
    if odd := sorted({row.status for row in mine} - KNOWN - {"closed"}):
        remedy = "hosts of these statuses are left alone; say so if they should not be"
        found.append(warning(check, f"unknown statuses: {', '.join(odd)}", remedy))
    if bare := sum(row.status == "closed" for row in mine):
        said = (
            f"{bare} hosts are `closed` without a reason: our pilots' own hosts would look like those "
            "of others"
        )
        found.append(wrong(check, said, "set lsf_form to the other one, or say which bhosts this is"))
    if len(slots.keys() - {0}) > 1:
        said = (
            "hosts differ in their slots: what a pending job asks for is counted in hosts of the usual size"
        )
        found.append(warning(check, said, "watch only hosts of one kind: lsf_select or lsf_hosts"))
    if unlimited := sum(not row.limited for row in mine):
        said = f"{unlimited} hosts have no limit of slots (MAX): pilots cannot ask for all of them"
        found.append(warning(check, said, "set MXJ in lsb.hosts"))
    return found


def gpu_findings(gpus: Mapping[str, Gpus], hosts: Sequence[str], source: str) -> list[Finding]:
    """Return how many GPUs the hosts that compute have."""
    check = "lsf gpus"
    if not any(gpus[name].count for name in hosts if name in gpus):
        remedy = "if hosts have GPUs, set lsf_gpus to their number on each: else pilots ask for none"
        return [ok(check, f"no host has GPUs, by {source}; {remedy}")]
    kinds = Counter(gpus[name].gres if name in gpus else "none" for name in hosts)
    told = ", ".join(f"{many} with {kind or 'none'}" for kind, many in kinds.most_common(MOST_NAMED))
    found = [ok(check, f"hosts by their GPUs: {told} ({source})")]
    if len(kinds) > 1:
        remedy = "give hosts of each kind a class of their own in node_classes, or watch one kind"
        found.append(warning(check, "hosts differ in their GPUs", remedy))
    return found


def single_gpus(settings: Settings, gpus: Mapping[str, Gpus], hosts: Sequence[str]) -> list[Finding]:
    """Check, where single GPUs are shared out, what forbids it, and whether hosts have `gpus_per_node`, which
    trainers that ask for nodes get of each."""
    check, each = "lsf single gpus", settings.gpus_per_node
    if settings.share != "gpu":
        return []
    if why := why_not(settings):
        return [wrong(check, f"the daemon refuses this: {why}", "change the settings as it says")]
    having = Counter(gpus[name].count if name in gpus else 0 for name in hosts)
    told = ", ".join(f"{many} with {count}" for count, many in having.most_common(MOST_NAMED))
    if not having.keys() - {0}:
        remedy = "set lsf_gpus to the number of GPUs of each host, or leave share out"
        return [wrong(check, "no host has GPUs, so that there is nothing to share out", remedy)]
    if having.keys() <= {0, each}:
        return [ok(check, f"hosts by their GPUs: {told}; those without any are not used")]
    usual = max(having.keys() - {0}, key=lambda count: having[count])
    said = f"hosts by their GPUs: {told}; a trainer that asks for nodes gets {each} GPUs of one host for each"
    remedy = f"set gpus_per_node: {usual}" if usual != each else "have trainers ask for gpus"
    return [warning(check, f"{said} (gpus_per_node)", remedy)]


def preempted_gpus(mode: str, *, asks: bool) -> list[Finding]:
    """Warn that LSF does not preempt pilots that ask it for GPUs (`asks`), if the mode relies on it."""
    if not asks or mode != "preempt":
        return []
    said = (
        "pilots ask LSF for GPUs, and LSF lets only GPU jobs preempt GPU jobs, and only those that may start "
        "again elsewhere, which pilots do not: for main jobs the daemon alone gives hosts back"
    )
    remedy = "set pilot_max_s to what a main job may wait where no daemon runs"
    return [warning("lsf gpu preemption", said, remedy)]


def job_findings(
    jobs: Sequence[LsfJobRow],
    hosts: Mapping[str, HostRow],
    launch: Sequence[str],
    launch_slots: int,
    now: float,
) -> list[Finding]:
    """Count the jobs by state, and compare what they say of hosts with bhosts."""
    check = "lsf bjobs"
    states = ", ".join(f"{many} {name}" for name, many in Counter(job.state for job in jobs).most_common())
    users, rough = len({job.user for job in jobs}), any(job.rounded_s > 1 for job in jobs)
    times = "times without seconds" if rough else "times with seconds"
    found = [
        ok(check, f"{len(jobs)} jobs ({states or 'none'}) of {users} users; {times if jobs else 'no times'}")
    ]
    running = [job for job in jobs if not job.pending]
    used: Counter[str] = Counter()
    for job in running:
        used.update(dict(values.without_launch(job.hosts, launch)))
    if strange := sorted(used.keys() - hosts.keys()):
        said = f"jobs run on hosts that bhosts does not show: {', '.join(strange[:MOST_NAMED])}"
        remedy = "launch hosts belong into lsf_launch_hosts; others are hidden by lsf_select or lsf_hosts"
        found.append(warning(check, said, remedy))
    if other := [
        name for name, row in hosts.items() if row.active != used[name] and not _launches(name, launch)
    ]:
        said = (
            f"on {len(other)} of {len(hosts)} hosts bhosts counts other slots in use than the jobs "
            "that bjobs "
            f"shows there, such as {', '.join(sorted(other)[:MOST_NAMED])}"
        )
        remedy = (
            "a few may have changed between the commands; if it stays, bjobs hides jobs of others, "
            "or exec_host is not understood"
        )
        found.append(warning(check, said, remedy))
    if (surplus := _surplus(running, launch)) not in (None, launch_slots):
        said = (
            f"most jobs ask for {surplus} slots more than they have on hosts that compute, and "
            f"lsf_launch_slots is {launch_slots}"
        )
        found.append(warning(check, said, f"set lsf_launch_slots to {surplus}"))
    if any((job.started or 0.0) > now + AHEAD_S for job in running):
        said = "jobs have started in the future: LSF prints times of another time zone, or a clock is wrong"
        found.append(wrong(check, said, "run the daemon with the TZ of LSF's hosts"))
    return found


def _launches(name: str, launch: Iterable[str]) -> bool:
    return values.is_launch(name, launch)


def _surplus(running: Iterable[LsfJobRow], launch: Sequence[str]) -> int | None:
    """By how many slots most jobs ask for more than they compute on; None if that is not clear."""
    counted = Counter(
        job.slots - sum(slots for _, slots in values.without_launch(job.hosts, launch))
        for job in running
        if job.hosts
    )
    most = counted.most_common(1)
    return max(0, most[0][0]) if most and 2 * most[0][1] > counted.total() else None


def window_findings(
    windows: Sequence[BackfillWindow], hosts: Mapping[str, HostRow], command: str = "bslots"
) -> list[Finding]:
    """Report what bslots (`command` has its options) says of how long slots stay unused."""
    check = f"lsf {command}"
    if not windows:
        said = "no backfill window: no hole has an expected end"
        return [
            warning(
                check, said, "windows need a queue with BACKFILL; without them every hole may end at any time"
            )
        ]
    told = "; ".join(f"{one.slots} slots for {_length(one.length_s)}" for one in windows[:MOST_NAMED])
    named = "on named hosts" if any(one.hosts for one in windows) else "without names of hosts"
    free = sum(row.slots - row.active for row in hosts.values() if row.status in IDLE)
    said = f"{len(windows)} windows {named}: {told}; bhosts counts {free} slots without a job"
    if sum(one.slots for one in windows) > free:
        said += "; together they have more, so a window includes longer ones, as we assume"
    return [ok(check, said)]


def _length(seconds: float) -> str:
    return "ever" if seconds == inf else duration(seconds)


def queue_findings(queues: Mapping[str, QueueRow], name: str) -> list[Finding]:
    """Return whether the queue of pilots is there and below all others."""
    check = "lsf bqueues"
    known = ", ".join(
        f"{row.name} {row.priority}" for row in sorted(queues.values(), key=lambda q: -q.priority)
    )
    found = [ok(check, f"queues and their priorities: {known}")]
    if not name:
        said = "lsf_queue is empty: pilots go to LSF's default queue, beside main jobs"
        return [*found, warning(check, said, "ask for a queue of a low priority that others preempt")]
    queue = queues.get(name)
    if queue is None:
        return [*found, wrong(check, f"there is no queue {name!r}", "set lsf_queue to one of these")]
    if not (queue.open and queue.active):
        found.append(wrong(check, f"queue {name} is not Open:Active", "pilots would not start there"))
    if above := [row.name for row in queues.values() if row.name != name and row.priority <= queue.priority]:
        said = f"queue {name} has no lower priority than {', '.join(above[:MOST_NAMED])}"
        found.append(warning(check, said, "give it the lowest priority: jobs of these would wait for pilots"))
    return found


def policy_findings(policies: Mapping[str, Mapping[str, str]], name: str, mode: str) -> list[Finding]:
    """Compare what `bqueues -l` says of the pilots' queue with what the mode needs. That main jobs preempt
    its jobs may stand with either queue."""
    check = "lsf bqueues -l"
    own = policies.get(name)
    if own is None:
        return [warning(check, f"it says nothing of queue {name} that is understood", "compare it yourself")]
    told = "; ".join(f"{what}: {said}" for what, said in own.items() if said)
    found = [ok(check, told[:500] or "no policies")]
    preempted = any(_preempts(other, name, mine=queue == name) for queue, other in policies.items())
    if mode == "preempt" and not preempted:
        said = f"no queue is said to preempt jobs of {name}, and lsf_mode is preempt"
        remedy = "ask for PREEMPTION = PREEMPTABLE[...] in lsb.queues, or set lsf_mode to window"
        found.append(warning(check, said, remedy))
    if mode == "window" and "BACKFILL" not in " ".join(own.values()).upper():
        said = "nothing there says that jobs of this queue are backfilled, and lsf_mode is window"
        remedy = "ask for BACKFILL = Y in lsb.queues: else pilots wait behind main jobs"
        found.append(warning(check, said, remedy))
    return found


def _preempts(said: Mapping[str, str], name: str, *, mine: bool) -> bool:
    """Return whether a queue's policies say that its jobs preempt those of queue `name`, or, of that queue
    itself, that its jobs are preempted."""
    words = " ".join(said.values()).upper()
    if mine:
        return "PREEMPTABLE" in words
    return "PREEMPTIVE" in words and ("PREEMPTIVE[" not in words or name.upper() in words)
