"""Plans RubberBand's evaluation again: fills in docs/evidence/evaluation-hpo.md and draws its picture.

    python benchmarks/hpo.py --traces DIR [--only TABLE]

DIR has the folders pollux-osdi21 and summit-2021 with the published measurements; nothing of them is copied.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from hpo_figures import FIGURES
from hpo_pool import POOLS
from hpo_tables import TABLES, Table

DOC = Path(__file__).parent.parent / "docs" / "evaluation-hpo.md"
MARKED = re.compile(r"(<!-- table: ([a-z0-9-]+) -->)\n.*?(<!-- end -->)", re.DOTALL)

ALL: dict[str, Callable[[Path], Table]] = {**TABLES, **FIGURES, **POOLS}


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; the first column is text, the others are numbers."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main() -> None:
    """Make the tables that the page names, or one of them, and write them into it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--traces", type=Path, required=True, help="folder of the published measurements")
    parser.add_argument("--only", choices=sorted(ALL), help="print one table, leave the page alone")
    parser.add_argument("--doc", type=Path, default=DOC)
    given = parser.parse_args()
    if given.only:
        print(markdown(*ALL[given.only](given.traces)))
        return

    def filled(found: re.Match[str]) -> str:
        began = time.perf_counter()
        table = markdown(*ALL[found[2]](given.traces))
        print(f"{found[2]}: {time.perf_counter() - began:.1f} s")
        return f"{found[1]}\n{table}\n{found[3]}"

    given.doc.write_text(MARKED.sub(filled, given.doc.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
