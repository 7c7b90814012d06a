"""Trainers that ask for GPUs, for replays: `python benchmarks/gpu_trainers.py > trainers.yaml`.

Half of them train small models on 1 to 8 GPUs, half large ones on 1 to 64. Their curves follow Amdahl's law;
GPUs of several nodes are 15 % slower. None finishes within a month.
"""

from __future__ import annotations

import argparse
import json
import random

KINDS = (("small", 8, 0.04), ("large", 64, 0.008))
"""Name, most GPUs, serial share."""


def trainer(number: int) -> dict[str, object]:
    """One spec, as YAML has it."""
    name, most, serial = KINDS[number % 2]
    one = random.Random(number).uniform(100, 1000)
    sizes = [n for n in (1, 2, 4, 8, 16, 32, 64) if n <= most]
    local = [[n, round(one * n / (1 + serial * (n - 1)), 1)] for n in sizes]
    return {
        "name": f"{name}-{number:02}",
        "command": ["train"],
        "gpus": {"max": most},
        "work": {"samples": 10**12},
        "curve": {"local": local, "across": [[n, round(0.85 * rate, 1)] for n, rate in local]},
        "scalability": "given",
        "rescale": {"up": {"stall_s": 1.0, "init_s": 5.0}, "down": {"stall_s": 1.0}},
    }


if __name__ == "__main__":
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    print(json.dumps([trainer(number) for number in range(16)], indent=1))
