"""Checks of GPUs for `bftrainer admin check`: types that a trainer could get mixed, nodes whose number the
settings have wrong, and nodes that have lost some. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from ClusterShell.NodeSet import NodeSet

from bftrainer import nodesets
from bftrainer.model.finding import Finding, ok, warning
from bftrainer.schedulers.slurm.check.partitions import Shown
from bftrainer.schedulers.slurm.queue.gpus import kinds, total
from bftrainer.settings.values import Settings

CHECK = "slurm GPUs"
COUNT = "slurm GPUs per node"
LOST = "slurm nodes with too little"
INVALID = "INVALID_REG"


def gpu_finding(settings: Settings, nodes: Mapping[str, Shown], partition: str) -> Finding:
    """Report the GPUs in the pilots' partition, and whether node_classes keeps their types apart.

    `nodes`: what `scontrol -o show node` says, by name.
    """
    having: defaultdict[tuple[str, ...], list[str]] = defaultdict(list)
    for name, row in nodes.items():
        types = tuple(kind or "no type" for kind, _ in kinds(row.get("Gres", "")))
        if types and partition in row.get("Partitions", "").split(","):
            having[types].append(name)
    if not having:
        return ok(CHECK, "none on the nodes of the pilots")
    said = "; ".join(f"{' and '.join(types)} on {_short(names)}" for types, names in sorted(having.items()))
    if several := [name for types, names in having.items() if len(types) > 1 for name in names]:
        remedy = f"name {_short(several)} in exclude_nodes, unless your trainers can bear it"
        return warning(CHECK, f"{said}: workers of one node would have GPUs of different types", remedy)
    classes = {name: nodesets.expand(text, operations=True) for name, text in settings.node_classes.items()}
    types_of: defaultdict[str, set[str]] = defaultdict(set)
    for (kind,), names in having.items():
        for node in names:
            types_of[next((own for own, members in classes.items() if node in members), "")].add(kind)
    if all(len(types) == 1 for types in types_of.values()):
        return ok(CHECK, said)
    wanted = ", ".join(f'"{types[0]}": "{_short(names)}"' for types, names in sorted(having.items()))
    return warning(CHECK, f"{said}: a trainer could mix them", f"set node_classes to {{{wanted}}}")


def count_finding(settings: Settings, nodes: Mapping[str, Shown], partition: str) -> list[Finding]:
    """Check, where single GPUs are shared out, whether nodes of the pilots' partition have `gpus_per_node`,
    which trainers that ask for nodes get of each. `nodes` as of `gpu_finding`."""
    if settings.share != "gpu":
        return []
    having: defaultdict[int, list[str]] = defaultdict(list)
    for name, row in nodes.items():
        if partition in row.get("Partitions", "").split(","):
            having[total(kinds(row.get("Gres", "")))].append(name)
    said = "; ".join(f"{count} on {_short(names)}" for count, names in sorted(having.items()))
    if set(having) <= {0, settings.gpus_per_node}:
        return [ok(COUNT, f"GPUs: {said}")]
    usual = max((count for count in having if count), key=lambda count: len(having[count]))
    whole = f"a trainer that asks for nodes gets {settings.gpus_per_node} GPUs (gpus_per_node) for each"
    remedy = (
        f"set gpus_per_node: {usual}" if usual != settings.gpus_per_node else "have trainers ask for gpus"
    )
    return [warning(COUNT, f"GPUs: {said}; {whole}, all of one node", remedy)]


def lost_finding(nodes: Mapping[str, Shown], partition: str) -> list[Finding]:
    """Nodes of the pilots' partition that Slurm has taken out, as it found less there than its files say: a
    GPU that is gone, for one. `nodes` as of `gpu_finding`."""
    lost = [
        name
        for name, row in nodes.items()
        if INVALID in row.get("State", "").split("+") and partition in row.get("Partitions", "").split(",")
    ]
    if not lost:
        return []
    said = (
        f"{_short(lost)}: Slurm found less there than slurm.conf says ({INVALID}), and starts no jobs there"
    )
    remedy = (
        f"scontrol show node {lost[0]} has the Reason, such as a GPU that is gone: mend it, or give Slurm's "
        f"files what is left; then scontrol update NodeName={_short(lost)} State=RESUME"
    )
    return [warning(LOST, said, remedy)]


def _short(names: list[str]) -> str:
    return str(NodeSet.fromlist(names))
