"""LSF as the settings have it."""

from __future__ import annotations

from bftrainer.errors import BftrainerError
from bftrainer.ports import Clock
from bftrainer.schedulers.lsf.check.single_gpus import why_not
from bftrainer.schedulers.lsf.commands import Form, Scope
from bftrainer.schedulers.lsf.observer import LsfObserver
from bftrainer.schedulers.lsf.pilot import LsfPilotJob
from bftrainer.schedulers.lsf.questions import Questions
from bftrainer.schedulers.lsf.scheduler import LsfScheduler
from bftrainer.schedulers.shared.context import NOBODY, NOWHERE, Context
from bftrainer.schedulers.shared.instance import instance
from bftrainer.schedulers.shared.pilot_job import common, make_log_dir
from bftrainer.settings.values import Settings

TEMPLATES = {"plain": "lsf-pilot.sh.j2", "easy": "summit-pilot.sh.j2", "expert": "summit-pilot.sh.j2"}
"""The scripts of pilots, by `lsf_submission`."""


def make(context: Context) -> LsfScheduler:
    """The daemon's scheduler; what is missing in its state directory is created.

    Raises:
        BftrainerError: the state directory is another user's, logs can have no folder, or see `batch`.
    """
    settings = context.settings
    make_log_dir(settings.pilot_log_dir)
    return batch(settings, context.agents_at, instance(settings.state_dir, create=True), context.clock)


def batch(
    settings: Settings, agents_at: str, instance: str, clock: Clock, asks: Questions | None = None
) -> LsfScheduler:
    """A scheduler with pilots of this instance, whose agents find the daemon at `agents_at`, host:port.
    `asks` asks LSF; None: what runs its commands.

    Raises:
        BftrainerError: LSF cannot give the single GPUs that are to be shared out, or the template of pilots
            cannot be read.
    """
    if why := why_not(settings):
        raise BftrainerError(why)
    return LsfScheduler(
        _pilot_job(settings, agents_at, instance),
        asks or questions(settings),
        launch=launch_hosts(settings),
        claim_patience_s=settings.claim_patience_s,
        clock=clock,
    )


def observer(settings: Settings, clock: Clock) -> LsfObserver:
    """A scheduler that is only polled, before anything is set up, also for what jobstat says. Hosts are seen
    whole, whatever is shared out.

    Raises:
        BftrainerError: the template of pilots cannot be read.
    """
    asks = questions(settings)
    whole = settings.model_copy(update={"share": "node"})
    return LsfObserver(batch(whole, NOWHERE, NOBODY, clock, asks), asks)


def launch_hosts(settings: Settings) -> tuple[str, ...]:
    """The patterns of hosts that only launch jobs."""
    return _words(settings.lsf_launch_hosts)


def questions(settings: Settings) -> Questions:
    """Return the queries of LSF, as the settings have them."""
    return Questions(
        Scope(settings.lsf_select, _words(settings.lsf_hosts), Form(settings.lsf_form)),
        timeout_s=settings.command_timeout_s,
        folder=settings.lsf_bin,
        plan_file=settings.lsf_plan_file,
        gpus=settings.lsf_gpus,
    )


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _pilot_job(settings: Settings, agents_at: str, instance: str) -> LsfPilotJob:
    mode, options, how = settings.lsf_mode, settings.lsf_options, settings.lsf_submission
    return LsfPilotJob(
        **common(settings, agents_at, instance, mode=mode, template=TEMPLATES[how], options=options),
        submission=how,
        queue=settings.lsf_queue,
        project=settings.lsf_project,
        launch_slots=settings.lsf_launch_slots,
        gpus=settings.share == "gpu",
    )
