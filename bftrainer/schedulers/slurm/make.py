"""Slurm as the settings have it."""

from __future__ import annotations

import shlex
from pathlib import Path

from bftrainer.ports import Clock
from bftrainer.schedulers.shared import templates
from bftrainer.schedulers.shared.context import NOBODY, NOWHERE, Context
from bftrainer.schedulers.shared.folders import make_log_dir
from bftrainer.schedulers.shared.instance import instance
from bftrainer.schedulers.shared.template import Template
from bftrainer.schedulers.slurm.pilot import PilotJob
from bftrainer.schedulers.slurm.scheduler import SlurmScheduler
from bftrainer.settings.values import Settings


def make(context: Context) -> SlurmScheduler:
    """The daemon's scheduler; what is missing in its state directory is created.

    Raises:
        BftrainerError: the state directory is another user's, logs can have no folder, or the template of
            pilots cannot be read.
    """
    own = context.settings
    make_log_dir(own.pilot_log_dir)
    return batch(own, context.agents_at, instance(own.state_dir, create=True), context.clock)


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
    preempt pilots there or not, and wherever agents would find a daemon.

    Raises:
        BftrainerError: the template of pilots cannot be read.
    """
    return batch(settings.model_copy(update={"slurm_mode": "window"}), NOWHERE, NOBODY, clock)


def _pilot_job(settings: Settings, agents_at: str, instance: str) -> PilotJob:
    return PilotJob(
        instance=instance,
        template=Template(Path(settings.pilot_template or templates.find("slurm-pilot.sh.j2"))),
        python=settings.pilot_python,
        daemon=agents_at,
        orphan_s=settings.orphan_s,
        log_dir=settings.pilot_log_dir,
        window=settings.slurm_mode == "window",
        partition=settings.slurm_partition,
        qos=settings.slurm_qos,
        account=settings.slurm_account,
        options=tuple(shlex.split(settings.slurm_options)),
        max_s=settings.pilot_limit_s(settings.slurm_mode),
        exec_prefix=settings.exec_prefix,
        parts=settings.harvest == "gpus",
    )
