"""Parses a job's demands from bsub's options. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

from lsf.emulator.core.model import Demand, SubmitError
from lsf.emulator.core.placing import Hosts

PTILE = re.compile(r"span\s*\[\s*ptile\s*=\s*(\d+)\s*\]")
ONE_HOST = re.compile(r"span\s*\[\s*hosts\s*=\s*1\s*\]")
NOT_HOST = re.compile(r"hname\s*!=\s*['\"]?([\w.-]+)['\"]?")
IS_HOST = re.compile(r"hname\s*==\s*['\"]?([\w.-]+)['\"]?")
EXPERT = re.compile(
    r"(\d+)\s*\*\s*\{[^}]*\bLN\b[^}]*\}\s*\+\s*(?:(\d+)\s*\*\s*)?(\d+)\s*\*\s*\{([^}]*\bCN\b[^}]*)\}"
)
SECTIONS = re.compile(r"\b(select|order|rusage|span|same|cu|affinity)\s*\[[^][]*(?:\[[^][]*\][^][]*)*\]")
EASY = ("nnodes", "ln_slots", "ln_mem", "cn_cu")
"""Options that expert mode refuses."""


def demand(given: Mapping[str, str], hosts: Hosts, hostfile: str = "") -> Demand:
    """The slots that a job asks for, from options without their dashes; `hostfile` is the text of that file.

    Raises:
        SubmitError: they are wrong, or exclude each other.
    """
    size = int(max((host.slots for host in hosts.all if not host.launch), default=1))
    requirement = given.get("R", "")
    launch = len(hosts.launch) > 0
    only = _asked(given["m"], hosts) if "m" in given else None
    if given.get("csm", "n").lower().startswith("y"):
        if wrong := [name for name in EASY if name in given]:
            raise SubmitError(f"-{wrong[0]} cannot be used with -csm y")
        return _expert(requirement, size, only, launch)
    if "nnodes" in given:
        if requirement:
            raise SubmitError("-R cannot be used with -nnodes; use -csm y")
        count = _count(given["nnodes"])
        return Demand(slots=size * count, per_host=size, whole=True, only=only, launch=launch)
    if hostfile:
        return _of_file(hostfile, hosts, "x" in given)
    _check(requirement)
    slots = _count(given.get("n", "1").partition(",")[0])
    tile = PTILE.search(requirement)
    named = frozenset(IS_HOST.findall(requirement))
    return Demand(
        slots=slots,
        per_host=int(tile[1]) if tile else 0,
        one_host=bool(ONE_HOST.search(requirement)),
        whole="x" in given,
        only=named if named else only,
        never=frozenset(NOT_HOST.findall(requirement)),
    )


def gpus(text: str, hosts: Hosts) -> int:
    """The GPUs of -gpu "num=4:mode=shared:j_exclusive=yes", on each host; "-" asks for one.

    Raises:
        SubmitError: they are no such words, or more than any host has.
    """
    if text != "-" and not re.fullmatch(r"[a-z_]+=[^:=]+(:[a-z_]+=[^:=]+)*", text):
        raise SubmitError("Error in the GPU resource requirement")
    num = re.search(r"(?:^|:)num=(\d+)(?:/host|/task)?(?=:|$)", text)
    wanted = int(num[1]) if num else 1
    if wanted > max((host.gpus for host in hosts.all), default=0):
        raise SubmitError("Cannot satisfy the GPU resource requirement")
    return wanted


def _expert(requirement: str, size: int, only: frozenset[str] | None, launch: bool) -> Demand:
    found = EXPERT.search(requirement)
    if found is None:
        raise SubmitError("Bad resource requirement syntax")
    slots = int(found[2] or 1) * int(found[3])
    tile = PTILE.search(found[4])
    each = int(tile[1]) if tile else size
    named = frozenset(IS_HOST.findall(found[4]))
    return Demand(
        slots=slots,
        per_host=each,
        whole=each == size,
        only=named if named else only,
        never=frozenset(NOT_HOST.findall(found[4])),
        launch=launch,
    )


def _check(requirement: str) -> None:
    rest = SECTIONS.sub("", requirement)
    if re.search(r"[][{}]", rest):
        raise SubmitError("Bad resource requirement syntax")


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise SubmitError("Bad argument: number of processors")
    return int(text)


def _asked(text: str, hosts: Hosts) -> frozenset[str]:
    """The hosts of -m: `h1 h2+1 h3!`."""
    names = frozenset(re.sub(r"(\+\d*|!)$", "", word) for word in text.split())
    if not names or not names <= hosts.index.keys():
        raise SubmitError("Bad host name, host group name or cluster name")
    return names


def _of_file(text: str, hosts: Hosts, exclusive: bool) -> Demand:
    """Lines `host [slots]`; all hosts have the same number."""
    rows = [line.split() for line in text.splitlines() if line.split() and not line.startswith("#")]
    names = frozenset(row[0] for row in rows)
    counts = {_count(row[1]) if len(row) > 1 else 1 for row in rows}
    if not rows or len(counts) > 1 or not names <= hosts.index.keys():
        raise SubmitError("Bad host name, host group name or cluster name")
    each = counts.pop()
    return Demand(slots=each * len(names), per_host=each, whole=exclusive, only=names)


def directives(script: str) -> list[str]:
    """The words of a script's #BSUB lines."""
    words: list[str] = []
    for line in script.splitlines():
        if found := re.match(r"#\s*BSUB\s+(.*)", line):
            words += shlex.split(found[1], comments=True)
    return words
