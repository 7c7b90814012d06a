"""Slurm as the settings have it."""

from __future__ import annotations

from bftrainer.ports import Clock
from bftrainer.schedulers.shared.context import NOBODY, NOWHERE, Context
from bftrainer.schedulers.shared.instance import instance
from bftrainer.schedulers.shared.pilot_job import common, make_log_dir
from bftrainer.schedulers.slurm.pilot import SlurmPilotJob
from bftrainer.schedulers.slurm.scheduler import SlurmScheduler
from bftrainer.settings.values import Settings


def make(context: Context) -> SlurmScheduler:
    """The daemon's scheduler; what is missing in its state directory is created.

    Raises:
        BftrainerError: the state directory is another user's, logs can have no folder, or the template of
            pilots cannot be read.
    """
    settings = context.settings
    make_log_dir(settings.pilot_log_dir)
    return batch(settings, context.agents_at, instance(settings.state_dir, create=True), context.clock)


def batch(settings: Settings, agents_at: str, instance: str, clock: Clock) -> SlurmScheduler:
    """A scheduler with pilots of this instance, whose agents find the daemon at `agents_at`, host:port.

    Raises:
        BftrainerError: the template of pilots cannot be read.
    """
    return SlurmScheduler(
        _pilot_job(settings, agents_at, instance),
        watch=frozenset(name for name in settings.slurm_watch.split(",") if name),
        command_timeout_s=settings.command_timeout_s,
        claim_patience_s=settings.claim_patience_s,
        clock=clock,
        cloud=settings.slurm_cloud,
        most_bytes=1_000_000 * settings.max_squeue_mb,
    )


def observer(settings: Settings, clock: Clock) -> SlurmScheduler:
    """A scheduler that is only polled, before anything is set up: a node counts as idle whether Slurm would
    preempt pilots there or not, and wherever agents would find a daemon. Nodes are seen whole, whatever is
    shared out.

    Raises:
        BftrainerError: the template of pilots cannot be read.
    """
    return batch(
        settings.model_copy(update={"slurm_mode": "window", "share": "node"}), NOWHERE, NOBODY, clock
    )


def _pilot_job(settings: Settings, agents_at: str, instance: str) -> SlurmPilotJob:
    mode, options = settings.slurm_mode, settings.slurm_options
    return SlurmPilotJob(
        **common(settings, agents_at, instance, mode=mode, template="slurm-pilot.sh.j2", options=options),
        partition=settings.slurm_partition,
        qos=settings.slurm_qos,
        account=settings.slurm_account,
        parts=settings.harvest == "gpus",
        gpus=settings.share == "gpu",
    )
