"""Cost of one poll of a large Slurm to the daemon: parsing, and finding the main jobs that could start.

    python benchmarks/slurm_parse.py [--nodes 4608] [--jobs 2000] [--repeat 5]

Writes text like that of scontrol and squeue for a machine of three partitions, most of it busy, part of it
planned, idle or held by pilots, and prints the CPU time of each part, the first time and at best.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable

from bftrainer.schedulers.slurm import text
from bftrainer.schedulers.slurm.dialect import SEPARATOR
from bftrainer.schedulers.slurm.own_jobs import SlurmOwnJobs
from bftrainer.schedulers.slurm.view import interpret

NOW, MARK = 1_795_000_000, "0123456789abcdef"
NODE = (
    "NodeName={name} Arch=x86_64 CoresPerSocket=22  CPUAlloc={alloc} CPUEfctv=44 CPUTot=44 CPULoad=1.25 "
    "AvailableFeatures={features} ActiveFeatures={features} Gres=gpu:v100:6(S:0-1) NodeAddr={name} "
    "NodeHostName={name} Version=22.05.8 OS=Linux 4.18.0-425.el8.x86_64 #1 SMP Thu Sep 29 12:00:00 UTC 2022  "
    "RealMemory=598000 AllocMem=0 FreeMem=571000 Sockets=2 Boards=1 State={state} ThreadsPerCore=1 TmpDisk=0 "
    "Weight=1 Owner=N/A MCS_label=N/A Partitions={partitions}  BootTime=179400000 SlurmdStartTime=1794000100 "
    "LastBusyTime=1794000100 CfgTRES=cpu=44,mem=598000M,billing=44,gres/gpu=6 AllocTRES= CapWatts=n/a "
    "CurrentWatts=0 AveWatts=0 ExtSensorsJoules=n/s ExtSensorsWatts=0 ExtSensorsTemp=n/s"
)
PARTITION = (
    "PartitionName={name} AllowGroups=ALL Default={default} MaxTime=UNLIMITED PriorityTier={tier} State=UP"
)


def machine(nodes: int, jobs: int, seed: int = 0) -> tuple[str, str]:
    """Return what scontrol and squeue print for a machine.

    Pilots hold a tenth of its nodes, a twentieth each is planned and idle, and two thirds of the jobs wait.
    """
    rng = random.Random(seed)
    names = [f"node{i:05d}" for i in range(nodes)]
    held, planned, idle = nodes // 10, nodes // 20, nodes // 20
    lines, queue = [], []

    def state(i: int) -> str:
        """Return the state of the node with this number."""
        if i < held:
            return "ALLOCATED"
        if i < held + planned:
            return "IDLE+PLANNED"
        return "IDLE" if i < held + planned + idle else "ALLOCATED"

    for i, name in enumerate(names):
        partitions = "debug,backfill" if i % 16 == 0 else "batch,backfill"
        lines.append(
            NODE.format(
                name=name, alloc=0, features=f"v100,rack{i // 18}", state=state(i), partitions=partitions
            )
        )
    lines += ["No reservations in the system"]
    lines += [
        PARTITION.format(name=name, default=default, tier=tier)
        for name, default, tier in (("batch", "YES", 10), ("debug", "NO", 20), ("backfill", "NO", 1))
    ]

    def add(number: int, partition: str, state: str, count: int, **others: str) -> None:
        """Add a job to the queue; keys of `others` are squeue's, with "_" for "%"."""
        fields = dict.fromkeys(text.FIELDS, "")
        fields |= {"%i": str(number), "%P": partition, "%u": "someone", "%T": state, "%l": "2:00:00"}
        fields |= {"%D": str(count), "%Q": str(10_000 - number), "%f": "(null)", "%v": "(null)", "%c": "1"}
        fields |= {"%m": "0", "%b": "N/A", "%64j": "a job", "%S": "N/A", "%e": "N/A", "%Y": "(null)"}
        fields |= {key.replace("_j", "_64j").replace("_", "%"): value for key, value in others.items()}
        queue.append(SEPARATOR.join((MARK, *fields.values())))

    for i in range(held):
        name = f"bftrainer-0a1b2c3d-{i:032x}"
        add(i, "backfill", "RUNNING", 1, _u="bft", _N=names[i], _n=names[i], _j=name, _e=str(NOW + 3600))
    running = max(0, jobs // 3 - held)
    first, busy = held + planned + idle, nodes - held - planned - idle
    share = busy // max(1, running)
    for i in range(running):
        block = f"node[{first + i * share:05d}-{first + (i + 1) * share - 1:05d}]"
        add(held + i, "batch", "RUNNING", share, _N=block, _S=str(NOW - 60), _e=str(NOW + 600))
    for i in range(held + running, jobs):
        count = rng.choice([1, 2, 4, 16, 64, 256, 1024])
        where = f"node[{held:05d}-{held + min(count, nodes - held) - 1:05d}]"
        plan = {"_Y": where, "_S": str(NOW + 60 * i)} if i < held + running + 100 else {}
        add(i, rng.choice(["batch", "batch", "debug"]), "PENDING", count, _r="Priority", **plan)
    return "\n".join(lines), "\n".join(queue)


def timed(what: str, work: Callable[[], object], repeat: int) -> float:
    """Print the CPU time of the first run and of the fastest; return the first one in ms."""
    times = []
    for _ in range(repeat):
        begin = time.process_time()
        work()
        times.append(1000 * (time.process_time() - begin))
    print(f"{what:24} {times[0]:7.1f} ms the first time, {min(times):6.1f} ms at best")
    return times[0]


def main() -> None:
    """Print the times of each part and their sum."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=4608)
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--repeat", type=int, default=5)
    asked = parser.parse_args()
    shown, queue = machine(asked.nodes, asked.jobs)
    print(f"{asked.nodes} nodes, {asked.jobs} jobs: {len(shown) / 1e6:.1f} and {len(queue) / 1e6:.2f} MB")
    total = timed("scontrol", lambda: text.machine(shown), asked.repeat)
    total += timed("squeue", lambda: text.jobs(queue.encode(), MARK), asked.repeat)
    parsed, jobs = text.machine(shown), text.jobs(queue.encode(), MARK)[0]
    ours = SlurmOwnJobs("0a1b2c3d", "bft", frozenset({"bft"}), "backfill")
    total += timed("nodes, pilots, claims", lambda: interpret(parsed, jobs, ours, now=NOW), asked.repeat)
    view = interpret(parsed, jobs, ours, now=NOW)
    print(f"{'together':24} {total:7.1f} ms")
    print(
        f"{len(view.snapshot.idle)} of {len(view.snapshot.nodes)} nodes ours, {len(view.snapshot.pilots)} "
        f"pilots, {len(view.snapshot.claims)} claims of {len(view.found.jobs)} jobs that could start"
    )


if __name__ == "__main__":
    main()
