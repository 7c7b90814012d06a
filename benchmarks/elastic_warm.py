"""Measures what the warm pool saves and costs: the time to a script's first line, and memory.

python benchmarks/elastic_warm.py [--repeat 5] python benchmarks/elastic_warm.py --workers 1 2 4    # memory
of 1, 2 and 4 workers on one node
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bftrainer.agent.process import Program, adopt_orphans, ended, kill_group, spawn
from bftrainer.agent.warm import WarmPool

SCRIPT = """\
import time
import torch
import sklearn.datasets
from bftrainer import elastic
print("here", flush=True)
time.sleep(60)
"""
TRAINS = """\
import time
import torch
import sklearn.datasets
from bftrainer import elastic
torch.set_num_threads(1)
model = torch.nn.Linear(1024, 1024)  # 4 MB of parameters, as much of gradients, twice that of Adam's tensors
optimizer = torch.optim.Adam(model.parameters())
for _ in range(20):
    optimizer.zero_grad()
    model(torch.randn(64, 1024)).square().mean().backward()
    optimizer.step()
print("here", flush=True)
time.sleep(600)
"""
PARTS = {"Rss": "resident", "Pss": "in parts", "Private_Dirty": "own", "Private_Clean": "own"}
"""The kernel's counts. In parts, shown as "with shared parts": each shared page divided among those that
have it."""


def memory_mb(pid: int) -> dict[str, float]:
    """Memory of a process in MB: resident, its part of it, and what of it no other process shares."""
    found = dict.fromkeys(PARTS.values(), 0.0)
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name in PARTS:
            found[PARTS[name]] += int(rest.split()[0]) / 1024
    return found


async def begin(program: Program, pool: WarmPool | None, output: Path) -> tuple[float, int]:
    """Seconds from the order to the script's first line, forked from `pool` or freshly started; its pid."""
    ours, theirs = socket.socketpair()
    environ = {**program.environment(), "BFTRAINER_WORKER": json.dumps({})}
    output.unlink(missing_ok=True)
    with ours, theirs, output.open("wb") as log:
        began = time.perf_counter()
        if pool is None:
            del environ["BFTRAINER_WORKER"]
            pid = spawn(
                program.command, workdir=None, environ=environ, output=log.fileno(), fds=[theirs.fileno()]
            )
        else:
            forked = await pool.fork(
                program, environ, title="worker", gated=False, channel=theirs.fileno(), output=log.fileno()
            )
            assert forked is not None, "nothing could be forked"
            pid = forked
        while not output.stat().st_size:
            await asyncio.sleep(0.002)
        return time.perf_counter() - began, pid


async def end(*pids: int) -> None:
    """Kill workers, and wait until they are gone."""
    for pid in pids:
        kill_group(pid)
    for pid in pids:
        await ended(pid)


async def first_line(program: Program, pool: WarmPool | None, output: Path) -> tuple[float, dict[str, float]]:
    """Seconds to the first line of a worker of its own, and its memory then."""
    took, pid = await begin(program, pool, output)
    used = memory_mb(pid)
    await end(pid)
    return took, used


async def measure(repeat: int) -> None:
    """Print times and memory of workers that are forked from the warm process and of fresh ones."""
    with tempfile.TemporaryDirectory() as folder:
        program, output = written(SCRIPT, folder), Path(folder) / "log"
        pool = WarmPool("benchmark")
        await pool.prepare(program)
        await first_line(program, pool, output)  # waits for the imports, too
        alone = memory_mb(pool.pid)
        rows = {}
        for name, source in (("started anew", None), ("forked", pool)):
            runs = [await first_line(program, source, output) for _ in range(repeat)]
            rows[name] = (statistics.median(took for took, _ in runs), runs[-1][1])
        pool.close()
    print(f"{os.cpu_count()} cores")
    print(f"the warm process alone: {said(alone)}")
    for name, (took, used) in rows.items():
        print(f"{name}: {took:.2f} s to the first line, {said(used)}")


async def measure_workers(counts: Sequence[int]) -> None:
    """Print the memory of several workers on one node, forked from one warm process, and freshly started.

    `in parts` of all processes together is what the node has to have; the warm process is one of them.
    """
    print("| workers | at | resident, in all | own, in all | with shared parts | and the warm process |")
    print("|---|---|---|---|---|---|")
    for name, script in (("first line", SCRIPT), ("20 steps", TRAINS)):
        with tempfile.TemporaryDirectory() as folder:
            program, output = written(script, folder), Path(folder) / "log"
            pool = WarmPool("benchmark")
            await pool.prepare(program)
            await first_line(program, pool, output)
            for source, how in ((pool, "forked"), (None, "started anew")):
                for count in counts:
                    pids = [(await begin(program, source, output))[1] for _ in range(count)]
                    every = [memory_mb(pid) for pid in pids]
                    used = {part: sum(own[part] for own in every) for part in every[0]}
                    warm = memory_mb(pool.pid)["in parts"] if source else 0.0
                    await end(*pids)
                    numbers = (used["resident"], used["own"], used["in parts"], used["in parts"] + warm)
                    print(f"| {count} {how} | {name} |" + "".join(f" {n:.0f} MB |" for n in numbers))
            pool.close()


def written(script: str, folder: str) -> Program:
    """The program of a script, in a folder."""
    path = Path(folder) / "script.py"
    path.write_text(script)
    return Program(command=("python", str(path)), workdir=folder, env={})


def said(used: dict[str, float]) -> str:
    """Return memory as text."""
    return f"{used['resident']:.0f} MB resident, {used['own']:.0f} MB its own"


def main() -> None:
    """Parse the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=5, help="how often each start is timed")
    parser.add_argument("--workers", type=int, nargs="+", help="memory only, of so many workers at once")
    given = parser.parse_args()
    adopt_orphans()
    asyncio.run(measure_workers(given.workers) if given.workers else measure(given.repeat))


if __name__ == "__main__":
    main()
