"""bsub: what it takes, what it refuses and what it says."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from bftrainer.files import open_regular
from lsf.emulator.commands import demands
from lsf.emulator.commands.context import Answer, Call, Lsf, failed
from lsf.emulator.commands.options import UsageError, limit_s, split
from lsf.emulator.core.model import Demand, Request, SubmitError
from lsf.emulator.core.placing import place

VALUED = (
    "q", "n", "nnodes", "W", "We", "J", "P", "o", "e", "oo", "eo", "R", "m", "alloc_flags", "csm", "ln_slots",
    "ln_mem", "cn_cu", "core_isolation", "smt", "hostfile", "wa", "wt", "env", "cwd", "G", "g", "app", "sp",
    "gpu", "ti", "jd", "L", "u",
)  # fmt: skip
FLAGS = ("x", "r", "rn", "H", "N", "B", "Ep", "nn")
NOT_EMULATED = ("I", "Is", "Ip", "K", "w", "U", "i", "is", "E", "b", "t", "Zs", "pack", "sla")
MOST_SCRIPT = 1_000_000
REJECTED = """\
#######################################################
###      1 ERROR(S) FOUND.  JOB NOT SUBMITTED.       ###

30: The '-n <slots>' flag is no longer supported.  Please use '-nnodes <node_count>' to request nodes.
Please address the given error(s) and resubmit.
"""
MAIN_USER = "main"


def bsub_command(call: Call) -> Answer:
    """Submit a job."""
    try:
        given, words, script = _given(call)
        if call.lsf.manners.wrapped and "n" in given and "csm" not in given:
            return failed(REJECTED)
        request = _request(call, given, words, script)
        if call.lsf.spend("lost_races"):
            _lose(call.lsf, request.demand, call.now)
        if call.lsf.manners.elsewhere and request.demand.only:
            demand = replace(request.demand, only=None, never=request.demand.never | request.demand.only)
            request = replace(request, demand=demand)
        job = call.lsf.cluster.submit(request, call.now)
    except SubmitError as error:
        return failed(f"{error}. Job not submitted.\n")
    except UsageError as error:
        return failed(str(error))
    default = "default " if request.default_queue else ""
    text = f"Job <{job.id}> is submitted to {default}queue <{request.queue}>.\n"
    if "BSUB_STDERR" in call.env or call.lsf.manners.on_stderr:
        return Answer(err=text)
    return Answer(out=text)


def wants_script(words: Sequence[str]) -> bool:
    """Return whether bsub reads a script on its standard input: no command stands on its command line."""
    try:
        return not _split(list(words))[1]
    except (SubmitError, UsageError):
        return False


def _given(call: Call) -> tuple[dict[str, str], list[str], str]:
    """Options, the command's words, and the script that stands on standard input."""
    given, words = _split(list(call.words))
    script = ""
    if not words:
        script = call.read()
        if not script.strip():
            raise SubmitError("No command is specified")
        inside = script
    else:
        inside = _file(call, words[0]) if call.lsf.manners.parse_scripts else ""
    found, rest = _split(demands.directives(inside))
    if rest:
        raise UsageError(f"bsub: {rest[0]}: no option\n")
    return {**found, **given}, words, script


def _split(words: list[str]) -> tuple[dict[str, str], list[str]]:
    if words and words[0].lstrip("-") in NOT_EMULATED and words[0].startswith("-"):
        raise SubmitError(f"{words[0]} is not emulated")
    return split(words, VALUED, FLAGS, command="bsub", stop=True)


def _file(call: Call, name: str) -> str:
    """The text of a file of the caller's, such as a script that is the command; empty if it is not read."""
    try:
        with open_regular(Path(call.cwd) / name, call.uid or None) as file:
            return file.read(MOST_SCRIPT).decode(errors="replace")
    except OSError:
        return ""


def _request(call: Call, given: dict[str, str], words: list[str], script: str) -> Request:
    site, hosts = call.lsf.cluster.state.site, call.lsf.cluster.state.hosts
    hostfile = _file(call, given["hostfile"]) if "hostfile" in given else ""
    if "hostfile" in given and not hostfile:
        raise SubmitError(f"{given['hostfile']}: Cannot open your host file")
    try:
        limit = limit_s(given["W"]) if "W" in given else 0.0
    except ValueError:
        raise SubmitError(f"{given['W']}: Bad RUNLIMIT specification") from None
    gpus = demands.gpus(given["gpu"], hosts) if "gpu" in given else 0
    return Request(
        demand=replace(demands.demand(given, hosts, hostfile), gpus=gpus),
        user=call.user,
        uid=call.uid,
        queue=given.get("q", site.default_queue),
        default_queue="q" not in given,
        limit_s=limit,
        name=given.get("J", ""),
        project=given.get("P", "default"),
        words=tuple(words),
        script=script,
        shown=" ".join(words) if words else script.strip().replace("\n", ";"),
        cwd=given.get("cwd", call.cwd),
        env=call.env,
        output=given.get("oo", given.get("o", "")),
        error=given.get("eo", given.get("e", "")),
        overwrite="oo" in given or "eo" in given,
        from_host=call.host,
        held="H" in given,
        rerunnable="rn" not in given,
        warning=_warning(given),
        exclusive="x" in given,
        easy="nnodes" in given,
        requirement=given.get("R", ""),
        group=given.get("G", given.get("P", "") if call.lsf.manners.wrapped else ""),
        estimate_s=limit_s(given["We"]) if "We" in given else 0.0,
    )


def _warning(given: dict[str, str]) -> tuple[int, float] | None:
    if "wa" not in given or "wt" not in given:
        return None
    try:
        number = signal.Signals[f"SIG{given['wa'].upper().removeprefix('SIG')}"].value
        return number, limit_s(given["wt"])
    except (KeyError, ValueError):
        raise SubmitError("Bad job warning action or time period") from None


def _lose(lsf: Lsf, demand: Demand, now: float) -> None:
    """Have a main job take the hosts that a job would get, just before it."""
    lsf.cluster.advance(now)
    state = lsf.cluster.state
    found = place(state.hosts, np.where(state.open, state.free, 0), demand)
    if found is None:
        return
    names = frozenset(state.hosts.names[at] for at in found.hosts.tolist())
    slots = int(state.hosts.slots[found.hosts].sum())
    first = max(state.site.queues, key=lambda queue: queue.priority)
    each = slots // len(names)
    lsf.cluster.submit(
        Request(
            demand=Demand(slots=slots, per_host=each, whole=True, only=names),
            user=MAIN_USER,
            queue=first.name,
            duration_s=lsf.manners.race_s,
            limit_s=lsf.manners.race_s + 60.0,
            name="main",
            shown="main",
        ),
        now,
    )
