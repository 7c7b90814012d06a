"""Options for reading a log."""

from __future__ import annotations

from dataclasses import dataclass

SHARES = ("node", "gpu")
FITS = ("first-fit", "best-fit")


@dataclass(frozen=True, slots=True)
class LogOptions:
    """Options for reading a log.

    Attributes:
        format: `intervals`, `swf`, `sacct`, `jobcomp`, `sinfo`, `bhosts`, `lsb.acct`, `snapshots` or
            `philly`; None: found from the content.
        machine_nodes: Nodes of the machine; None: what the log says, or as many as it names.
        cores_per_node: Processors of an SWF log that make one node.
        min_gap_s: Idle intervals shorter than this (s) are left out: those between one job and the next.
        share: `node`: the log is of whole nodes; `gpu`: of single GPUs, named as `model.gpus` does.
        gpus_per_node: GPUs of each node.
        gpu_jobs: Jobs use GPUs, of which the log says how many: which, `first-fit` or `best-fit` says.
        max_broken: The share of lines that may be broken, 0 to 1, before the log is refused.
        launch_hosts: Hosts of LSF that only launch jobs, as patterns a*,b*: they are no nodes.
    """

    format: str | None = None
    machine_nodes: int | None = None
    cores_per_node: int = 1
    min_gap_s: float = 0.0
    max_broken: float = 0.01
    launch_hosts: str = "batch*,login*"
    share: str = "node"
    gpus_per_node: int = 1
    gpu_jobs: str | None = None
