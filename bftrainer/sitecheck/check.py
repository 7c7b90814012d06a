"""All checks of a site's set-up, one after the other. A check that fails does not keep others from theirs."""

from __future__ import annotations

import asyncio
from importlib import import_module
from pathlib import Path

from bftrainer.api.client import Client
from bftrainer.errors import BftrainerError
from bftrainer.model.finding import Finding, not_checked, ok, warning
from bftrainer.settings.schedulers import SCHEDULERS
from bftrainer.settings.values import Settings
from bftrainer.sitecheck import machine
from bftrainer.sitecheck.files import file_findings


def check(settings: Settings, files: tuple[Path, ...], user: str) -> list[Finding]:
    """Everything that was found; `files` are those that the settings come from, `user` one of the users whom
    the daemon is to serve, or "". Changes nothing."""
    return [*file_findings(settings, files), daemon(settings), *asyncio.run(_asked(settings, user))]


def daemon(settings: Settings) -> Finding:
    """Report what a daemon says of itself, if one runs."""
    try:
        status = Client(settings.socket).call("GET", "status")
    except BftrainerError as error:
        return not_checked("daemon", f"{str(error).splitlines()[0].partition(';')[0]}")
    problems = status.get("problems") or []
    if problems:
        return warning("daemon", "; ".join(str(problem) for problem in problems), "see bftrainer status")
    return ok("daemon", f"it runs (pid {status.get('pid')}), and is {status.get('state')}")


async def _asked(settings: Settings, user: str) -> list[Finding]:
    found = [machine.descriptors(settings), *machine.ports(settings), await machine.munge(settings)]
    found += await machine.sudo(settings, user)
    found += await machine.unit(settings)
    own = SCHEDULERS[settings.scheduler].check
    if own:
        found += await import_module(own).check(settings)
    return found
