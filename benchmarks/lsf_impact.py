"""Do main jobs notice bftrainer? The same jobs on an emulated LSF: without it, with it, and without it again.

    python benchmarks/lsf_impact.py --mix nodes --seeds 1-5
    python benchmarks/lsf_impact.py --mix slots --jobs 30 --load 0.28    # a first impression
    python benchmarks/lsf_impact.py --mix slots --virtual --seeds 1-5    # in a minute, without processes
    python benchmarks/lsf_impact.py --all --seeds 1-5                    # all that docs/ shows

Each seed is a load of main jobs and makes a pair: three runs, some four minutes each. A run's result and logs
lie in OUT/CONDITION/SEED-MODE; one that is there and was taken with the same options is not taken again, so a
command that was interrupted goes on where it was. Then the pairs are compared: tables on the output and in
OUT/CONDITION/comparison.md, a chart beside it. Main jobs and pilots are real processes. For figures that
count, nothing else should run beside it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # lsf/ is not installed

from benchmarks.testbeds.impact import benchmark
from lsf.impact.condition import Condition
from lsf.impact.mix import MIXES

USUAL: dict[str, Any] = {"nodes": 8, "jobs": 90, "seconds": 180.0, "load": 0.35}
DOCUMENTED = tuple(Condition(mix=mix, **USUAL, virtual=virtual) for virtual in (True, False) for mix in MIXES)
"""The conditions with figures in docs/evidence/lsf-impact.md."""


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the command line."""
    parser = benchmark.options(__doc__, tuple(MIXES), Path("build/lsf-impact"))
    parser.add_argument("--virtual", action="store_true", help="in virtual time, seconds instead of minutes")
    parser.add_argument("--slow", action="store_true", help="jobs are dispatched every 5 s, as on Summit")
    return parser.parse_args(words)


def condition_of(args: argparse.Namespace) -> Condition:
    """Return the condition that all runs of a command share."""
    return Condition(**benchmark.common(args), slow=args.slow, virtual=args.virtual)


def main() -> int:
    """Take the pairs, and print what they show; 1 if a goal is to be checked and missed."""
    args = parse()
    return benchmark.carry_out(args, condition_of(args), DOCUMENTED)


if __name__ == "__main__":
    benchmark.program(main)
