"""What the warm pool saves and costs: the time to a script's first line, and memory.

python benchmarks/elastic_warm.py [--repeat 5]
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


def memory_mb(pid: int) -> dict[str, int]:
    """Resident memory of a process and what of it no other process shares, in MB."""
    found = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name in ("Rss", "Pss", "Private_Dirty", "Private_Clean"):
            found[name] = int(rest.split()[0]) // 1024
    return {"resident": found["Rss"], "own": found["Private_Dirty"] + found["Private_Clean"]}


async def first_line(program: Program, pool: WarmPool | None, output: Path) -> tuple[float, dict[str, int]]:
    """Seconds from the order to the script's first line, forked from `pool` or started anew; its memory."""
    ours, theirs = socket.socketpair()
    environ = {**program.environment(), "BFTRAINER_WORKER": json.dumps({})}
    with ours, theirs, output.open("wb") as log:
        began = time.perf_counter()
        if pool is None:
            del environ["BFTRAINER_WORKER"]
            pid = spawn(
                program.command, workdir=None, environ=environ, output=log.fileno(), fd=theirs.fileno()
            )
        else:
            forked = await pool.fork(
                program, environ, title="worker", gated=False, channel=theirs.fileno(), output=log.fileno()
            )
            assert forked is not None, "nothing could be forked"
            pid = forked
        while not output.stat().st_size:
            await asyncio.sleep(0.002)
        took, used = time.perf_counter() - began, memory_mb(pid)
        kill_group(pid)
        await ended(pid)
    return took, used


async def measure(repeat: int) -> None:
    """Print times and memory of workers that are forked from the warm process and of fresh ones."""
    adopt_orphans()
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "script.py"
        script.write_text(SCRIPT)
        program = Program(command=("python", str(script)), workdir=folder, env={})
        pool = WarmPool("benchmark")
        await pool.prepare(program)
        await first_line(program, pool, Path(folder) / "log")  # waits for the imports, too
        alone = memory_mb(pool.pid)
        rows = {}
        for name, source in (("started anew", None), ("forked", pool)):
            runs = [await first_line(program, source, Path(folder) / "log") for _ in range(repeat)]
            rows[name] = (statistics.median(took for took, _ in runs), runs[-1][1])
        pool.close()
    print(f"{os.cpu_count()} cores")
    print(f"the warm process alone: {said(alone)}")
    for name, (took, used) in rows.items():
        print(f"{name}: {took:.2f} s to the first line, {said(used)}")


def said(used: dict[str, int]) -> str:
    """Return memory as text."""
    return f"{used['resident']} MB resident, {used['own']} MB its own"


def main() -> None:
    """Parse the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=5)
    asyncio.run(measure(parser.parse_args().repeat))


if __name__ == "__main__":
    main()
