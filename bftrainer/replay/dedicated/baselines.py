"""Tiresias and Optimus, as Pollux's authors compare with them (section 5.2).

Both keep the batch that a user asks for. Tiresias has the user's workers as well, in two queues; Optimus
chooses workers by the time that each saves, which an oracle tells it. Both scale learning rates by AdaScale.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from bftrainer.performance.goodput import split
from bftrainer.replay.dedicated.cluster import ClusterShape, Held
from bftrainer.replay.dedicated.job import RunningJob
from bftrainer.replay.dedicated.programs import MeasuredProgram

SHORT_GPU_S = 16 * 3600.0
"""A job that has had more GPU time waits behind those that had less."""


class Tiresias:
    """Jobs with little GPU time first, each group in order of arrival; the others are preempted for them."""

    fixes_workers = fixes_batch = True
    fills_memory = False

    def __init__(self) -> None:
        self._queues: tuple[list[str], list[str]] = ([], [])
        self._ran: dict[str, float] = {}
        self._last = 0.0

    def decide(self, now: float, jobs: Sequence[RunningJob], held: Held, cluster: ClusterShape) -> Held:
        """Workers as asked for, to as many jobs as find room, in the queues' order."""
        by_name = {job.job.name: job for job in jobs}
        first, second = ([name for name in queue if name in by_name] for queue in self._queues)
        first += [name for name in by_name if name not in self._ran]
        self._ran = {
            name: self._ran.get(name, 0.0) + (now - self._last if name in held else 0.0) for name in by_name
        }
        self._last = now
        long = [name for name in first if self._ran[name] * by_name[name].job.workers >= SHORT_GPU_S]
        long.sort(key=list(by_name).index)
        first, second = [name for name in first if name not in long], second + long
        self._queues = first, second
        room, counts = cluster.size, {}
        for name in first + second:
            if by_name[name].job.workers <= room:
                counts[name] = by_name[name].job.workers
                room -= counts[name]
        return emptiest_first(counts, {name: held[name] for name in held if name in counts}, cluster)


class Optimus:
    """One worker each, then further ones to where the next saves most of the remaining time."""

    fixes_workers, fixes_batch, fills_memory = False, True, False

    def decide(self, now: float, jobs: Sequence[RunningJob], held: Held, cluster: ClusterShape) -> Held:
        """Workers by marginal gain; jobs of an unchanged number stay where they are."""
        room = cluster.size
        counts: dict[str, int] = {}
        gains: dict[str, float] = {}
        by_name = {job.job.name: job for job in jobs}
        for name, job in by_name.items():
            if room:
                counts[name], room = 1, room - 1
                gains[name] = saved(job, 1, cluster) if room else 0.0
        while room and gains and max(gains.values()) > 0:
            name = max(gains, key=lambda name: gains[name])
            counts[name] += 1
            gains[name] = saved(by_name[name], counts[name], cluster)
            room -= 1
        stay = {name: held[name] for name in held if len(held[name]) == counts.get(name)}
        return emptiest_first(dict(sorted(counts.items(), key=lambda item: item[1])), stay, cluster)


def saved(job: RunningJob, workers: int, cluster: ClusterShape) -> float:
    """The time (s) that one worker more saves a job in its remaining iterations; 0 if it can have none."""
    limits, batch = job.program.limits, job.batch or job.job.batch
    if workers + 1 > (job.workers or min(cluster.size, batch // limits.local_least)):
        return 0.0
    last = job.program.epochs - 1
    if last <= job.epoch:
        left = 1.0
    else:
        left = job.program.iterations(batch, last) - job.program.iterations(batch, job.epoch)
    times = [iteration_s(job.program, batch, count, cluster.gpus) for count in (workers, workers + 1)]
    return left * (times[0] - times[1])


@lru_cache(maxsize=65536)
def iteration_s(program: MeasuredProgram, batch: int, workers: int, gpus: int) -> float:
    """The time (s) of an iteration on the fewest nodes with `gpus` GPUs each."""
    full, rest = divmod(workers, gpus)
    local, steps = (int(value) for value in split(program.limits, workers, batch))
    if workers == 1 and steps == 0:  # the authors' Optimus counts a lone worker's step twice at least
        local, steps = -(-local // 2), 1
    step, sync = program.times((gpus,) * full + ((rest,) if rest else ()), local)
    return step + steps * (step - sync)


def emptiest_first(counts: dict[str, int], stay: Held, cluster: ClusterShape) -> Held:
    """Place jobs in this order, each on the first of the emptiest nodes; those in `stay` keep theirs."""
    free = [cluster.gpus] * cluster.nodes
    for nodes in stay.values():
        for node in nodes:
            free[node] -= 1
    found = dict(stay)
    for name, count in counts.items():
        if name in found:
            continue
        chosen: tuple[int, ...] = ()
        while len(chosen) < count:
            node = free.index(max(free))
            taken = min(free[node], count - len(chosen))
            chosen += (node,) * taken
            free[node] -= taken
        found[name] = chosen
    return found
