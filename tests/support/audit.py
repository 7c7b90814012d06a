"""Was every sample used once? Reads what scripts/count.py wrote."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

LENGTH = 5_000  # of scripts/count.py's data


def audit(where: Path, samples: int) -> int:
    """Assert that the surviving history uses `samples` samples, each of an epoch once.

    A step may have been taken twice (all nodes were lost, the run went on from a checkpoint): its last
    generation counts, and steps after the last one of the last generation were taken in vain. A worker that
    was killed between a step and its note leaves a gap in that step, but not in the others' notes of it.
    Returns the number of steps.
    """
    steps: dict[int, dict[int, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for path in where.glob("*.jsonl"):
        for line in path.read_text().splitlines():
            note = json.loads(line) if line.endswith("}") else None
            if note is not None:
                steps[note["step"]][note["generation"]].append(note)
    newest = max((generation for notes in steps.values() for generation in notes), default=0)
    last = max((step for step, notes in steps.items() if newest in notes), default=-1)
    for step in [step for step in steps if step > last]:
        del steps[step]
    assert sorted(steps) == list(range(len(steps))), "a step is missing"
    used: dict[int, list[int]] = defaultdict(list)
    position, total, holes = (0, 0), 0, 0
    for step in sorted(steps):
        notes = steps[step][max(steps[step])]
        first = notes[0]
        assert all(
            (n["epoch"], n["cursor"], n["size"]) == (first["epoch"], first["cursor"], first["size"])
            for n in notes
        )
        assert len({n["rank"] for n in notes}) == len(notes), "two workers had one rank"
        assert (first["epoch"], first["cursor"]) == position, (
            f"step {step} does not go on where the one before ended"
        )
        size = min(first["size"] * 16, LENGTH - first["cursor"], samples - total)
        here = [i for n in notes for i in n["indices"]]
        assert len(here) <= size
        holes += size - len(here)
        used[first["epoch"]] += here
        total += size
        end = first["cursor"] + size
        position = (first["epoch"], end) if end < LENGTH else (first["epoch"] + 1, 0)
    assert total == samples
    for epoch, indices in used.items():
        assert len(set(indices)) == len(indices), f"a sample of epoch {epoch} was used twice"
    assert sum(len(v) for v in used.values()) + holes == samples
    return len(steps)
