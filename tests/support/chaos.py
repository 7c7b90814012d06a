"""Kill agents, workers and the daemon at random, and see every trainer finish all the same.

python -m tests.support.chaos --seconds 120 --seed 1
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import time
from collections import Counter

from tests.support.audit import audit
from tests.support.site import Site, always, running
from tests.support.waiting import LONG_S


def torment(site: Site, seconds: float, rng: random.Random) -> Counter[str]:
    """SIGKILL something every one to three seconds; a killed daemon is restarted at once."""
    killed: Counter[str] = Counter()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(rng.uniform(1.0, 3.0))
        what = rng.choices(["worker", "agent", "daemon"], weights=[5, 3, 2])[0]
        if what == "daemon":
            site.kill_daemon()
            site.start()
        else:
            pids = site.workers() if what == "worker" else site.agents()
            if not pids:
                continue
            with contextlib.suppress(ProcessLookupError):
                os.kill(rng.choice(pids), signal.SIGKILL)
        killed[what] += 1
    return killed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    wanted = dict.fromkeys(("one", "two"), int(1500 * options.seconds))
    with running(always("n01", "n02", "n03", "n04"), reconnect_s=5) as site:
        for name, samples in wanted.items():
            notes = site.root / name
            notes.mkdir()
            site.submit(
                name, "count.py", str(notes), "0.01", samples=samples, n_max=2, checkpoint={"every_s": 1.0}
            )
        killed = torment(site, options.seconds, rng)
        print("killed", dict(killed))
        for name, samples in wanted.items():
            ended = site.until_ended(name)
            assert ended["status"] == "completed", site.story()
            assert ended["samples"] == samples, ended
            steps = audit(site.root / name, samples)
            print(f"{name}: {samples} samples in {steps} steps, each used once")
        lost = [p for p in site.get("pauses", limit=10_000) if p["kind"] != "restart" and p["lost_steps"]]
        assert not lost, lost
        pauses = sorted(p["pause_s"] for p in site.get("pauses", limit=10_000) if p["kind"] != "restart")
        print(f"{len(pauses)} pauses, median {pauses[len(pauses) // 2]:.3f} s, max {pauses[-1]:.3f} s")
        site.stop()
        site.until(lambda: not site.processes(), LONG_S, "no process is left")


if __name__ == "__main__":
    main()
