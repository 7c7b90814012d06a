"""Operations of tests and administrators on an emulated LSF that no command of LSF has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from lsf.emulator.clock import VirtualClock
from lsf.emulator.core.model import Closed, Request, SubmitError

if TYPE_CHECKING:
    from lsf.emulator.server import Server

REQUESTS = TypeAdapter(list[Request])


class ControlError(Exception):
    """It cannot be done; the text says why."""


def carry_out(server: Server, said: Mapping[str, Any], *, allowed: bool) -> dict[str, Any]:
    """Do what is asked, and return `{"done": ...}` or `{"error": ...}`."""
    name = said["control"]
    if not allowed:
        return {"error": "only the user of the server and root may do that"}
    if name not in ACTIONS:
        return {"error": f"no action {name!r}; there are {', '.join(ACTIONS)}"}
    try:
        return {"done": ACTIONS[name](server, said.get("with", {}))}
    except (ControlError, SubmitError, ValueError, TypeError, KeyError) as error:
        return {"error": f"{name}: {error}"}


def _manners(server: Server, given: Mapping[str, Any]) -> None:
    """Change some manners."""
    server.lsf.manners = replace(server.lsf.manners, **given)
    server.lsf.windows.clear()


def _site(server: Server, given: Mapping[str, Any]) -> None:
    """Change parameters of the site, such as kill_parallel and report_s."""
    state = server.lsf.cluster.state
    if wrong := given.keys() & {"hosts", "queues", "name", "first_id"}:
        raise ControlError(f"{', '.join(wrong)} cannot be changed")
    state.site = replace(state.site, **given)


def _host(server: Server, given: Mapping[str, Any]) -> None:
    """Close a host or, without a reason, open it."""
    reason = given.get("closed")
    server.lsf.cluster.set_host(given["name"], Closed(reason) if reason else None, server.clock.now())


def _submit(server: Server, given: Mapping[str, Any]) -> list[int]:
    """Submit jobs at once, and return their ids."""
    jobs = REQUESTS.validate_python(given["jobs"])
    return [server.lsf.cluster.submit(job, server.clock.now()).id for job in jobs]


def _feed(server: Server, given: Mapping[str, Any]) -> int:
    """Submit jobs `after_s` seconds from now, and return how many."""
    jobs, now = REQUESTS.validate_python(given["jobs"]), server.clock.now()
    server.lsf.cluster.feed(list(zip((now + after for after in given["after_s"]), jobs, strict=True)))
    return len(jobs)


def _move(server: Server, given: Mapping[str, Any]) -> float:
    """Move the virtual clock, and return the time."""
    if not isinstance(server.clock, VirtualClock):
        raise ControlError("time is real")
    server.clock.move(server.clock.now() + float(given["seconds"]))
    return server.clock.now()


def _now(server: Server, given: Mapping[str, Any]) -> float:
    """The time."""
    return server.clock.now()


def _jobs(server: Server, given: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return every job that is still listed, with times in Unix s."""
    server.lsf.cluster.advance(server.clock.now())
    state = server.lsf.cluster.state
    return [
        {
            "id": job.id,
            "name": job.request.name,
            "user": job.request.user,
            "queue": job.request.queue,
            "state": job.state.value,
            "submitted": job.submitted,
            "start": job.start,
            "end": job.end,
            "code": job.code,
            "why": job.why,
            "runs": job.run,
            "pid": job.pid,
            "hosts": [state.hosts.names[at] for at in job.placement.hosts.tolist()] if job.placement else [],
        }
        for job in state.jobs.values()
    ]


def _stop(server: Server, given: Mapping[str, Any]) -> None:
    """Stop the server, and all jobs."""
    server.stop()


ACTIONS: Mapping[str, Callable[[Server, Mapping[str, Any]], Any]] = {
    "manners": _manners,
    "site": _site,
    "host": _host,
    "submit": _submit,
    "feed": _feed,
    "move": _move,
    "now": _now,
    "jobs": _jobs,
    "stop": _stop,
}
