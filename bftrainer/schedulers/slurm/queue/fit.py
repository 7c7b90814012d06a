"""On which nodes jobs may run at all. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping

from bftrainer.schedulers.slurm.queue.constraints import ANY, Features
from bftrainer.schedulers.slurm.queue.gpus import Kinds, Parts, covers, like
from bftrainer.schedulers.slurm.rows import NodeRow, Partition, SlurmJobRow
from bftrainer.schedulers.slurm.values import names


class NodeFit:
    """Answers for these nodes; those that differ in nothing but their names are looked at once."""

    def __init__(self, nodes: Mapping[str, NodeRow], partitions: Mapping[str, Partition]) -> None:
        self._nodes, self._partitions = nodes, partitions
        self._alike: dict[object, set[str]] = defaultdict(set)
        for name, row in nodes.items():
            self._alike[row.partitions, row.features, row.cpus, row.memory_mb, row.gpus, row.gpu_parts].add(
                name
            )
        self._known: dict[object, frozenset[str]] = {}
        self._together: dict[tuple[object, ...], frozenset[str]] = {}

    def nodes(self, job: SlurmJobRow, features: Features) -> frozenset[str]:
        """Those that have what a job needs, with one of these sets of features."""
        excluded = names(job.excluded)
        if excluded is None or names(job.required) is None:
            return frozenset()
        found = self._where(job.partitions, features, *job.each)
        return found - excluded if excluded else found

    def everywhere(self, job: SlurmJobRow) -> frozenset[str]:
        """Those of the job's partitions."""
        return self._where(job.partitions, ANY, 0, 0, (), ())

    def _where(
        self,
        partitions: Collection[str],
        features: Features,
        cpus: int,
        memory_mb: int,
        gpus: Kinds,
        parts: Parts,
    ) -> frozenset[str]:
        key = (partitions, features, cpus, memory_mb, gpus, parts)
        found = self._known.get(key)
        if found is None:
            up = {name for name in partitions if name in self._partitions and self._partitions[name].up}
            alike = tuple(
                kind
                for kind, rows in self._alike.items()
                if not up.isdisjoint((row := self._nodes[next(iter(rows))]).partitions)
                and any(alternative <= set(row.features) for alternative in features)
                and row.cpus >= cpus
                and row.memory_mb >= memory_mb
                and covers(row.gpus, gpus)
                and all(
                    any(own == name and like(kind, type_) for own, type_, _ in row.gpu_parts)
                    for name, kind, _ in parts
                )
            )
            if (
                alike not in self._together
            ):  # thousands of jobs may ask for what differs and mean the same nodes
                self._together[alike] = frozenset().union(*(self._alike[kind] for kind in alike))
            found = self._known[key] = self._together[alike]
        return found
