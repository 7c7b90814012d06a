"""Checks a site's LSF: shows how each command's output was understood, and every assumption that does not
hold. It only asks; it submits and ends nothing.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from bftrainer.errors import SchedulerError
from bftrainer.model.finding import Finding, not_checked, ok, warning, wrong
from bftrainer.schedulers.lsf import commands, values
from bftrainer.schedulers.lsf.check.findings import (
    gpu_findings,
    host_findings,
    job_findings,
    policy_findings,
    preempted_gpus,
    queue_findings,
    single_gpus,
    version_finding,
    window_findings,
)
from bftrainer.schedulers.lsf.command import reason
from bftrainer.schedulers.lsf.make import launch_hosts, questions
from bftrainer.schedulers.lsf.questions import Questions
from bftrainer.schedulers.lsf.rows import HostRow, LsfJobRow
from bftrainer.schedulers.lsf.text import hosts_text, jobs_text, queues_text
from bftrainer.schedulers.shared.command import CommandOutput
from bftrainer.schedulers.shared.text import TextError
from bftrainer.settings.values import Settings

ORDERS = ("bsub", "bkill")
"""Commands that change something: it is only seen whether they are there."""
SHOWN = 300


async def check(settings: Settings) -> list[Finding]:
    """Everything that can be found out of LSF without changing it."""
    asked = questions(settings)
    try:
        return await _whole(settings, asked)
    finally:
        asked.close()


async def _whole(settings: Settings, asked: Questions) -> list[Finding]:
    form = asked.scope.form
    found = await _read(asked, "lsid", commands.identity(), _version)
    if found[0].level.value == "wrong":
        return found  # no other command would say more
    hosts: dict[str, HostRow] = {}
    jobs: list[LsfJobRow] = []

    def of_hosts(done: CommandOutput) -> list[Finding]:
        hosts.update(hosts_text.hosts(done.out))
        return host_findings(hosts, launch_hosts(settings))

    def of_jobs(done: CommandOutput) -> list[Finding]:
        jobs.extend(jobs_text.jobs(done.out, done.err, time.time()))
        return job_findings(jobs, hosts, launch_hosts(settings), settings.lsf_launch_slots, time.time())

    def of_windows(command: str, done: CommandOutput) -> list[Finding]:
        return window_findings(hosts_text.windows(f"{done.out}\n{done.err}"), hosts, command)

    def of_queues(done: CommandOutput) -> list[Finding]:
        return queue_findings(queues_text.queues(done.out), settings.lsf_queue)

    def of_policies(done: CommandOutput) -> list[Finding]:
        return policy_findings(queues_text.policies(done.out), settings.lsf_queue, settings.lsf_mode)

    found += await _read(asked, "bhosts", commands.hosts(asked.scope), of_hosts)
    found += await _read(asked, "bjobs", commands.jobs(form), of_jobs)
    found += await _gpus(settings, asked, hosts)
    for name in ("bslots", "bslots -l"):
        words = commands.windows(asked.scope, long=name != "bslots")
        found += await _read(asked, name, words, partial(of_windows, name), needed=False)
    found += await _read(asked, "bqueues", commands.queues(form), of_queues)
    if settings.lsf_queue:
        found += await _read(asked, "bqueues -l", commands.policies(), of_policies, needed=False)
    found += await _plan(settings, asked)
    return [*found, *(_there(settings, name) for name in ORDERS)]


async def _read(
    asked: Questions,
    name: str,
    words: Sequence[str],
    read: Callable[[CommandOutput], list[Finding]],
    *,
    needed: bool = True,
) -> list[Finding]:
    """Ask one command and say what was understood; what could not be is shown as it was printed."""
    try:
        done = await asked.run(asked.path_of(words), question=True)
    except SchedulerError as error:
        return [_trouble(name, str(error), needed=needed)]
    try:
        found = await asked.apart(lambda: read(done))
    except TextError as error:
        said = (done.out or done.err)[:SHOWN]
        return [
            _trouble(
                name, f"{reason(done, str(error))}; exit code {done.code}, printed {said!r}", needed=needed
            )
        ]
    if done.code:
        beside = f"exit code {done.code} beside an answer that can be read: {done.err.strip()[:SHOWN]!r}"
        return [ok(f"lsf {name}", beside), *found]
    return found


async def _gpus(settings: Settings, asked: Questions, hosts: Mapping[str, HostRow]) -> list[Finding]:
    """The GPUs of hosts, as the first command tells that knows them."""
    mine = [name for name in hosts if not values.is_launch(name, launch_hosts(settings))]
    source = "bhosts -gpu or lshosts -gpu" if settings.lsf_gpus is None else "lsf_gpus"
    found = await asked.gpus(mine)
    asks = any(found[name].count for name in mine if name in found) and settings.lsf_submission == "plain"
    return [
        *gpu_findings(found, mine, source),
        *single_gpus(settings, found, mine),
        *preempted_gpus(settings.lsf_mode, asks=asks),
    ]


def _trouble(name: str, said: str, *, needed: bool) -> Finding:
    if needed:
        remedy = (
            "start the check where LSF's commands work, as the daemon's account; see lsf_bin and lsf_form"
        )
        return wrong(f"lsf {name}", said, remedy)
    return not_checked(f"lsf {name}", said, "nothing depends on it but how long holes are expected to last")


def _version(done: CommandOutput) -> list[Finding]:
    return [version_finding(queues_text.identity(done.out))]


async def _plan(settings: Settings, asked: Questions) -> list[Finding]:
    if not settings.lsf_plan_file:
        return []
    plans = await asked.plans()
    if not plans:
        said = f"{settings.lsf_plan_file}: no plan that can be read"
        return [
            warning("lsf plan", said, "see whether ALLOCATION_PLANNER is on and this account may read it")
        ]
    hosts = {host for plan in plans for host in plan.hosts}
    return [ok("lsf plan", f"{len(plans)} plans for {len(hosts)} hosts")]


def _there(settings: Settings, name: str) -> Finding:
    """Return whether a command is there that the check does not run."""
    found = shutil.which(name, path=settings.lsf_bin or None)
    if found is None:
        return wrong(
            f"lsf {name}", "there is no such command", "set lsf_bin to the folder with LSF's commands"
        )
    return ok(f"lsf {name}", f"{found}; it changes things, so this check does not run it")
