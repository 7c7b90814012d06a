"""Times the choice of nodes for main jobs, at the worst that users can make of it.

    python benchmarks/vacate.py

Every claim names other nodes, as jobs with a `--nodelist` or `--exclude` of their own do. All claims together
name a million nodes at most (`MOST_CHOICES` of schedulers/slurm/queue/walk.py). Trainers of the sizes 1, 2,
4, ...
lose speed in steps: all nodes of a claim are chosen together then.
"""

from __future__ import annotations

import argparse
import random
import time
from itertools import product

from bftrainer.model.machine import Claim
from bftrainer.model.sizes import EVERY_SIZE, AllowedSizes
from bftrainer.model.trainer import Points, Trainer, TrainerSpec
from bftrainer.nodes.vacate import choose

NODES = 5000
CASES = ((200, 4999, 1), (1000, 1000, 1), (5000, 200, 1), (400, 2500, 10), (1000, 1000, 3), (1, 5000, 2500))
"""Number of claims, nodes that each names, and nodes that each needs."""


def trainers(number: int, sizes: AllowedSizes) -> tuple[list[Trainer], dict[int, Points]]:
    """Trainers that share out all nodes, and their speeds."""
    size = NODES // number
    found = []
    for i in range(number):
        nodes = tuple(f"n{i * size + k:05}" for k in range(size))
        spec = TrainerSpec(name=f"t{i}", command=("x",), n_min=1, n_max=sizes.floor(size), sizes=sizes)
        found.append(Trainer(id=i, spec=spec, submitted_at=0.0, nodes=frozenset(nodes), members=nodes))
    return found, {i: ((size, float(size * (1 + i % 7))),) for i in range(number)}


def main() -> None:
    """Print a line for each case."""
    argparse.ArgumentParser(description=__doc__.partition("\n")[0]).parse_args()
    rng = random.Random(1)
    print(f"{NODES} nodes\ntrainers  sizes   claims  of nodes  each    seconds  given up")
    steps = ("all", EVERY_SIZE), ("powers", AllowedSizes(listed=tuple(2**i for i in range(9))))
    for number, (name, sizes) in product((20, 500, 1250, 5000), steps):
        some, curves = trainers(number, sizes)
        held = frozenset(node for t in some for node in t.nodes)
        for claims, among, count in CASES:
            wanted = [
                Claim(job=str(i), nodes=frozenset(rng.sample(sorted(held), among)), count=count)
                for i in range(claims)
            ]
            began = time.perf_counter()
            given_up = choose(wanted, held, some, curves)
            took = time.perf_counter() - began
            print(
                f"{number:8}  {name:6}  {claims:6}  {among:8}  {count:4}  {took:9.2f}  {len(given_up):8}",
                flush=True,
            )


if __name__ == "__main__":
    main()
