"""Times how an agent leaves its node after SIGTERM, as from Slurm's preemption, and what that costs.

python benchmarks/agent_leave.py [--repeat 20]

Two nodes train; the agent of one gets SIGTERM. Measured: until no process of its pilot is left, the pause of
the member that stays, and steps lost.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # tests/ is not installed

from tests.support.site import Site, always, running


def session(leader: int) -> list[int]:
    """The living processes of a session."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                state, _, _, own = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
            except (OSError, ValueError):
                continue
            if int(own) == leader and state != "Z":
                found.append(int(entry.name))
    return found


def leave(site: Site) -> float:
    """Seconds from SIGTERM until the pilot is gone, with everything in it."""
    agent = site.agent_on("n2")
    began = time.monotonic()
    os.kill(agent, signal.SIGTERM)
    while session(agent):
        time.sleep(0.002)
    return time.monotonic() - began


def main() -> None:
    """Print how long an agent and its worker take to leave."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeat", type=int, default=20, help="how often [20]")
    options = parser.parse_args()
    took: list[float] = []
    with running(always("n1", "n2"), poll_s=0.25) as site:
        notes = site.root / "notes"
        notes.mkdir()
        costs = {"up": {"stall_s": 0.1, "init_s": 1.0}, "down": {"stall_s": 0.1}}
        site.submit("count", "count.py", str(notes), "0.01", n_max=2, rescale=costs)
        for i in range(options.repeat):
            site.until_members("count", "n1", "n2", seconds=120)
            time.sleep(1.0)  # it trains
            took.append(leave(site))
            print(f"\r{i + 1} of {options.repeat}", end="", file=sys.stderr, flush=True)
        site.until_members("count", "n1", "n2", seconds=120)
        pauses = [p for p in site.get("pauses", limit=10_000) if p["kind"] in ("leave", "loss")]
        site.client.call("DELETE", "trainers/count")
    print(file=sys.stderr)
    for what, values in (("gone after", took), ("pause of who stays", [p["pause_s"] for p in pauses])):
        found = f"median {statistics.median(values):.3f} s, largest {max(values):.3f} s, {len(values)} times"
        print(f"{what:20}{found}")
    kinds = Counter(p["kind"] for p in pauses)
    print(f"{'steps lost':20}{sum(p['lost_steps'] for p in pauses)}, {dict(kinds)}")


if __name__ == "__main__":
    main()
