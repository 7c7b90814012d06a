"""Whether a trainer could get GPUs of different types, for `bftrainer admin check`. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from ClusterShell.NodeSet import NodeSet

from bftrainer.model.finding import Finding, ok, warning
from bftrainer.schedulers.slurm.gpus import kinds
from bftrainer.schedulers.slurm.partitions import Shown
from bftrainer.settings.checks import nodeset
from bftrainer.settings.values import Settings

CHECK = "slurm GPUs"


def gpu_finding(settings: Settings, nodes: Mapping[str, Shown], partition: str) -> Finding:
    """What GPUs the nodes of the pilots' partition have, and whether node_classes keeps their types apart.

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
    classes = {name: nodeset(text) for name, text in settings.node_classes.items()}
    types_of: defaultdict[str, set[str]] = defaultdict(set)
    for (kind,), names in having.items():
        for node in names:
            types_of[next((own for own, members in classes.items() if node in members), "")].add(kind)
    if all(len(types) == 1 for types in types_of.values()):
        return ok(CHECK, said)
    wanted = ", ".join(f'"{types[0]}": "{_short(names)}"' for types, names in sorted(having.items()))
    return warning(CHECK, f"{said}: a trainer could mix them", f"set node_classes to {{{wanted}}}")


def _short(names: list[str]) -> str:
    return str(NodeSet.fromlist(names))
