"""bkill, bstop, bresume and brequeue: what changes jobs."""

from __future__ import annotations

import signal
from collections.abc import Callable

from lsf.emulator.commands.context import FAILED, Answer, Call, failed
from lsf.emulator.commands.options import split
from lsf.emulator.core.jobs import Job

Order = Callable[[Call, Job], str]
"""Does something to a job and says what LSF prints after `Job <id> is being`."""


def bkill_command(call: Call) -> Answer:
    """End or signal jobs."""
    given, ids = split(call.words, {"s", "q", "u", "m", "J"}, {"l", "r", "b"}, command="bkill")
    if given.get("s") in ("", "-l") or "l" in given:
        return Answer(out=" ".join(number.name.removeprefix("SIG") for number in signal.Signals) + "\n")
    number: int | None = None
    if "s" in given:
        number = _number(given["s"])
        if number is None:
            return failed(f"{given['s']}: Illegal signal value\n")

    def order(call: Call, job: Job) -> str:
        """Return the verb."""
        cluster = call.lsf.cluster
        if number is None:
            cluster.kill(job, call.now, admin=call.admin and job.request.user != call.user)
        else:
            cluster.signal(job, number, call.now)
        return "terminated" if number in (None, signal.SIGKILL) else "signaled"

    return _each(call, given, ids, order)


def _number(text: str) -> int | None:
    if text.isdecimal():
        return int(text) if 0 < int(text) < signal.NSIG else None
    name = text.upper() if text.upper().startswith("SIG") else f"SIG{text.upper()}"
    try:
        return signal.Signals[name].value
    except KeyError:
        return None


def bstop_command(call: Call) -> Answer:
    """Suspend jobs."""

    def order(call: Call, job: Job) -> str:
        """Return the verb."""
        call.lsf.cluster.stop(job, call.now)
        return "stopped"

    return _plain(call, "bstop", order)


def bresume_command(call: Call) -> Answer:
    """Let suspended jobs go on."""

    def order(call: Call, job: Job) -> str:
        """Return the verb."""
        call.lsf.cluster.resume(job, call.now)
        return "resumed"

    return _plain(call, "bresume", order)


def brequeue_command(call: Call) -> Answer:
    """End jobs so that they wait again."""

    def order(call: Call, job: Job) -> str:
        """Return the verb."""
        call.lsf.cluster.requeue(job, call.now)
        return "requeued"

    return _plain(call, "brequeue", order)


def _plain(call: Call, name: str, order: Order) -> Answer:
    given, ids = split(call.words, {"q", "u", "m", "J"}, {"e", "r", "p", "d"}, command=name)
    return _each(call, given, ids, order)


def _each(call: Call, given: dict[str, str], ids: list[str], order: Order) -> Answer:
    """Do something to each job. Without an id it is the caller's latest one that fits; 0 are all."""
    jobs = call.lsf.cluster.state.jobs
    if not ids or ids == ["0"]:
        found = [job for job in jobs.values() if not job.ended and _fits(call, given, job)]
        ids = [str(job.id) for job in (found if ids else found[-1:])]
        if not ids:
            return failed("No matching job found\n")
    out, err = "", ""
    for word in ids:
        job = jobs.get(int(word)) if word.isdecimal() else None
        if job is None:
            err += f"Job <{word}>: No matching job found\n"
        elif not call.may(job):
            err += f"Job <{word}>: User permission denied\n"
        elif job.ended:
            err += f"Job <{word}>: Job has already finished\n"
        else:
            out += f"Job <{word}> is being {order(call, job)}\n"
    return Answer(out=out, err=err, code=FAILED if err else 0)


def _fits(call: Call, given: dict[str, str], job: Job) -> bool:
    request = job.request
    user = given.get("u", call.user)
    return (
        user in ("all", request.user)
        and given.get("q", request.queue) == request.queue
        and given.get("J", request.name) == request.name
        and call.may(job)
    )
