"""Maps names to commands, with the faults that all of them share."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lsf.emulator.commands import jobs_shown, orders, views
from lsf.emulator.commands.bsub import bsub_command
from lsf.emulator.commands.context import Answer, Call, failed
from lsf.emulator.commands.options import UsageError

Command = Callable[[Call], Answer]
DOWN = "LSF is down. Please wait ...\n"
UNREACHABLE = "Cannot connect to LSF. Please wait ...\n"
RETRY_S = 1.0

COMMANDS: Mapping[str, Command] = {
    "bslots": views.bslots_command,
    "bhosts": views.bhosts_command,
    "bqueues": views.bqueues_command,
    "jobstat": views.jobstat_command,
    "lsid": views.lsid_command,
    "lshosts": views.lshosts_command,
    "bjobs": jobs_shown.bjobs_command,
    "bhist": jobs_shown.bhist_command,
    "bacct": jobs_shown.bacct_command,
    "bsub": bsub_command,
    "bkill": orders.bkill_command,
    "bstop": orders.bstop_command,
    "bresume": orders.bresume_command,
    "brequeue": orders.brequeue_command,
}


def answer(name: str, call: Call) -> Answer:
    """Run a command."""
    lsf = call.lsf
    lsf.cluster.advance(call.now)
    if lsf.manners.hang:
        return Answer(err=DOWN, code=255, hang=True)
    if lsf.spend("down"):
        return Answer(err=DOWN, code=255, retry_s=RETRY_S)
    try:
        made = COMMANDS[name](call)
    except UsageError as error:
        return failed(str(error))
    if name == "bsub" and not made.code and lsf.spend("unreachable"):
        return Answer(UNREACHABLE + made.out, made.err, made.code)
    return Answer(err=DOWN, code=255, hang=True) if lsf.spend("unanswered") else made
