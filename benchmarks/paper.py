"""The paper's evaluation and beyond: runs all replays, fills in evidence/evaluation.md, draws its pictures.

    python benchmarks/paper.py --traces DIR --out DIR [--jobs N]

DIR of the traces has the published log and workloads. Every replay is a line of a sweep in
benchmarks/paper/*.yaml; those that --out has already are not run again.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from io import BytesIO
from pathlib import Path

from matplotlib import rc_context
from matplotlib.figure import Figure
from paper_pictures import PICTURES
from paper_results import Results
from paper_tables import TABLES
from PIL import Image

from bftrainer.replay.report.drawing import LOOK

HERE = Path(__file__).parent
GRIDS = sorted((HERE / "paper").glob("*.yaml"))
RECORDED = ("hpo", "parallel")
"""Sweeps of which more is shown than the figures of each run."""
MARKED = re.compile(r"(<!-- table: ([a-z0-9-]+) -->)\n.*?(<!-- end -->)", re.DOTALL)


def main() -> None:
    """Run what is missing, then write tables and pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--traces", type=Path, required=True, help="folder of the published log and workloads"
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for results")
    parser.add_argument("--jobs", type=int, default=1, help="replays at once")
    parser.add_argument("--doc", type=Path, default=HERE.parent / "docs" / "evidence" / "evaluation.md")
    given = parser.parse_args()
    for grid in GRIDS:
        sweep(grid, given.traces, given.out, given.jobs)
    results = Results(given.traces, given.out)
    given.doc.write_text(filled(given.doc.read_text(encoding="utf-8"), results), encoding="utf-8")
    folder = given.doc.parent / "pictures"
    folder.mkdir(exist_ok=True)
    for name, draw in PICTURES.items():
        with rc_context(LOOK):
            save(draw(results), folder / f"{name}.png")


def sweep(grid: Path, traces: Path, out: Path, jobs: int) -> None:
    """Run what is missing of a sweep."""
    options: list[str | Path] = ["--files", traces, "--out", out / grid.stem, "--jobs", str(jobs)]
    if grid.stem in RECORDED:
        options.append("--record")
    print("$ bftrainer sweep", grid, *options, file=sys.stderr)
    command = [sys.executable, "-m", "bftrainer", "sweep", grid, *options]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def save(figure: Figure, path: Path) -> None:
    """As a PNG of few colours, for it is kept with the sources."""
    plain = BytesIO()
    figure.savefig(plain, dpi=110)
    Image.open(plain).convert("RGB").quantize(128).save(path, optimize=True)


def filled(text: str, results: Results) -> str:
    """Return the document with every table between its marks replaced."""

    def table(found: re.Match[str]) -> str:
        return f"{found[1]}\n{TABLES[found[2]](results)}\n{found[3]}"

    return MARKED.sub(table, text)


if __name__ == "__main__":
    main()
