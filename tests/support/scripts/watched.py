"""Moments of a training script: a test sees that a worker has come there, holds it, or has it end.

A worker that comes to a moment leaves the file `moment@node.pid` in its folder of notes. While a file
`moment@node.order` is there, it waits; if "end" stands in it, the program ends with exit code 0.
To import this is the moment "start".
"""

import json
import os
import sys
import time
from pathlib import Path

where = Path(sys.argv[1])
node = json.loads(os.environ.get("BFTRAINER_WORKER", '{"node": ""}'))["node"]
_seen: set[str] = set()


def at(moment: str) -> None:
    """This worker is at a moment of its life."""
    if moment not in _seen:
        _seen.add(moment)
        (where / f"{moment}@{node}.{os.getpid()}").touch()
    order = where / f"{moment}@{node}.order"
    while (told := _read(order)) is not None:
        if told == "end":
            sys.exit(0)
        time.sleep(0.01)


def _read(order: Path) -> str | None:
    """None: there is none. It may be taken back at any moment."""
    try:
        return order.read_text()
    except FileNotFoundError:
        return None


def step(delay: float) -> None:
    """A step that takes `delay` seconds, or none once a file `fast` is there."""
    at("step")
    if not (where / "fast").exists():
        time.sleep(delay)


at("start")
