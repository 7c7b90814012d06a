"""What the scripts of frameworks write down: the samples of each micro-batch."""

import json
import os
import sys
import time
from pathlib import Path

SLOWER_FROM = 40

folder = Path(sys.argv[1])
_delay = float(sys.argv[2]) if len(sys.argv) > 2 else 0.0
_run = f"{os.environ.get('TORCHELASTIC_RESTART_COUNT')} at {os.environ.get('MASTER_PORT')}"
_last = 0
_out = (folder / f"{os.getpid()}-{time.time_ns()}.jsonl").open("a", buffering=1)


def note(step: int, samples: list[int], size: int) -> None:
    """This rank computes these samples, as a part of a step of `size` ranks."""
    global _last  # noqa: PLW0603  of this process
    _last = step
    line = {"step": step, "samples": samples, "size": size, "run": _run, "at": time.time()}
    _out.write(json.dumps(line) + "\n")


def pause() -> None:
    """Take the time that a test needs, until there is a file `fast`.

    From `SLOWER_FROM` on each step takes longer, so that the work is not done before all that is to happen
    has, however slow the machine is.
    """
    if not (folder / "fast").exists():
        time.sleep(_delay * max(1, _last - SLOWER_FROM))
