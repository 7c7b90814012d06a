"""Do main jobs notice bftrainer? The same jobs on the same Slurm: without it, with it, and without it again.

    python benchmarks/slurm_impact.py --mix cores --seeds 1-5
    python benchmarks/slurm_impact.py --mix everything --jobs 30 --load 0.28    # a first impression
    python benchmarks/slurm_impact.py --all --seeds 1-5                         # all that docs/ shows

Each seed is a load of main jobs and makes a pair: three runs, some four minutes each. A run's result and logs
lie in OUT/CONDITION/SEED-MODE; one that is there and was taken with the same options is not taken again, so a
command that was interrupted goes on where it was. Then the pairs are compared: tables on the output and in
OUT/CONDITION/comparison.md, a chart beside it. Needs root and Slurm (make slurm); for figures that count,
nothing else should run beside it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # slurm/ is not installed

from benchmarks.testbeds.impact import benchmark
from slurm.impact.condition import Condition
from slurm.testbed.mix import MIXES

USUAL: dict[str, Any] = {"nodes": 8, "jobs": 90, "seconds": 180.0, "load": 0.35, "shared": True}
DOCUMENTED = (
    Condition(mix="cores", **USUAL),
    Condition(mix="everything", **USUAL),
    Condition(mix="cores", **USUAL, slow_polls_s=0.5),
    Condition(mix="cores", **USUAL, stock=True),
    Condition(mix="cores", **{**USUAL, "nodes": 64, "jobs": 180, "seconds": 270.0, "load": 0.2}),
)
"""The conditions with figures in docs/evidence/slurm-impact.md."""


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the command line."""
    parser = benchmark.options(__doc__, ("cores", *MIXES), Path("build/slurm-impact"))
    nodes = parser.add_mutually_exclusive_group()
    nodes.add_argument("--shared", action="store_true", default=True, help="main jobs share nodes (default)")
    nodes.add_argument("--exclusive", dest="shared", action="store_false", help="each has whole nodes")
    parser.add_argument(
        "--stock", "--stock-intervals", action="store_true", help="Slurm's own intervals: bf_interval=30, ..."
    )
    parser.add_argument("--slow-polls", type=float, default=0, help="what a poll takes longer, in s [0]")
    parser.add_argument(
        "--het-preempt",
        action="store_true",
        help="heterogeneous jobs preempt pilots, as without what sites set",
    )
    parser.add_argument(
        "--share", choices=("node", "gpu"), default="node", help="mix gpus: what trainers get [node]"
    )
    args = parser.parse_args(words)
    if args.share == "gpu" and (args.mix != "gpus" or not args.shared):
        parser.error("--share gpu: only nodes of --mix gpus have GPUs, and they are shared with main jobs")
    return args


def condition_of(args: argparse.Namespace) -> Condition:
    """Return the condition that all runs of a command share."""
    return Condition(
        **benchmark.common(args),
        shared=args.shared,
        stock=args.stock,
        slow_polls_s=args.slow_polls,
        preempting=args.het_preempt,
        share=args.share,
    )


def main() -> int:
    """Take the pairs, and print what they show; 1 if a goal is to be checked and missed."""
    args = parse()
    return benchmark.carry_out(args, condition_of(args), DOCUMENTED)


if __name__ == "__main__":
    benchmark.program(main)
