"""The schedulers that there are: one line each. Everything that asks for their names reads them here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerKind:
    """A batch system that bftrainer can use.

    `module` has a function `make(context) -> Scheduler`, see `schedulers.shared.context`, and, unless its
    nodes are on this machine, `observer(settings, clock) -> Scheduler`, which is only polled; `check` names a
    module with a function `async check(settings) -> list[Finding]`, what `bftrainer admin check` says of the
    batch system, or is empty. Both are imported only where they are used. `on_this_machine`: its nodes are
    slots of this machine that a log calls idle; agents reach the daemon at its socket, and everything runs as
    the daemon's user. `shares_gpus`: its pilots may have single GPUs (`share: gpu`). `orders` are the
    commands that sudo has to allow the daemon's account as users, `environ` the variables that it may leave
    these, `needed` those that it must, and what happens without. `folder` is the setting that says where the
    commands are, or is empty: PATH does. `template` is the pilots' script in jobscripts/, and `on_a_node`
    what a command begins with that is to run on a node; settings of a batch system stand in braces.
    `defaults` are settings of other sections that have another default with it.
    """

    module: str
    check: str = ""
    orders: tuple[str, ...] = ()
    environ: tuple[str, ...] = ()
    needed: Mapping[str, str] = field(default_factory=dict)
    folder: str = ""
    template: str = ""
    on_a_node: str = ""
    on_this_machine: bool = False
    shares_gpus: bool = False
    defaults: Mapping[str, float] = field(default_factory=dict)


SCHEDULERS: Mapping[str, SchedulerKind] = {
    "slurm": SchedulerKind(
        module="bftrainer.schedulers.slurm.make",
        check="bftrainer.schedulers.slurm.check.check",
        orders=("sbatch", "scancel"),
        environ=("SLURM_CONF",),
        template="slurm-pilot.sh.j2",
        on_a_node="srun --partition={slurm_partition}",
        shares_gpus=True,
    ),
    "lsf": SchedulerKind(
        module="bftrainer.schedulers.lsf.make",
        check="bftrainer.schedulers.lsf.check.check",
        orders=("bsub", "bkill"),
        environ=("BFTRAINER_PILOT_SECRET", "LSB_NTRIES", "LSF_ENVDIR", "LSF_SERVERDIR"),
        needed={
            "BFTRAINER_PILOT_SECRET": "no pilot of a user could start",
            "LSB_NTRIES": "where LSF does not answer, they go on for ever, and only root can end them",
        },
        folder="lsf_bin",
        template="lsf-pilot.sh.j2",
        on_a_node="bsub -I -q {lsf_queue} -W 5",
        shares_gpus=True,
        # one daemon of LSF answers all questions; a host between two jobs does not count as idle
        defaults={"poll_s": 10.0, "debounce_s": 10.0},
    ),
    "local": SchedulerKind(module="bftrainer.schedulers.local.make", on_this_machine=True, shares_gpus=True),
}
