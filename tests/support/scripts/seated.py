"""Writes down which device a worker has, and its ranks: a file for each membership and rank."""

import json
import os
from pathlib import Path

NAMING = ("SIMULATED_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")


def note(where: Path, membership: int, rank: int, size: int, local: tuple[int, int]) -> None:
    seen = next(os.environ[name] for name in NAMING if name in os.environ).split(",")
    own = seen[0] if len(seen) == 1 else seen[local[0]]  # as torch.device("cuda", LOCAL_RANK) is meant
    file = where / f"{membership}-{size}-{rank}.json"
    file.with_suffix(".new").write_text(json.dumps({"device": own, "rank": rank, "local": local}))
    file.with_suffix(".new").rename(file)
