"""Prints the sentences of pages that have more than 30 words, longest first, and each page's mean.

    python .ci/sentences.py [PAGE ...] [--over WORDS] [--summary]

A sentence should have 15 words on average, and none over 30. Tables, code and headings do not count.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
MOST = 30
NAMES = "bftrainer|bjobs|transformers|accelerate|torch|slurmd"  # small at the beginning of a sentence, too
END = re.compile(rf"(?<=[.!?:;])[*)`]*\s+(?=[\"'(\[`*]*(?:[A-Z0-9`]|{NAMES}))")
NOT_PROSE = re.compile(r"(?ms)^```.*?^```$|^ {4}.*?$|^\|.*?$|^#.*?$|<!--.*?-->|^\$\$.*?\$\$$")


def sentences(text: str) -> list[str]:
    """The sentences of a page's prose. An item of a list ends one, as a blank line does."""
    prose = NOT_PROSE.sub("\n\n", text)
    prose = re.sub(r"\]\([^)]*\)", "]", prose)
    blocks = re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )", prose)
    flat = (" ".join(block.split()) for block in blocks)
    return [sentence for block in flat for sentence in END.split(block) if len(sentence.split()) > 1]


def main() -> None:
    """Print what breaks the rule."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("pages", nargs="*", type=Path, help="all of docs/ without any")
    parser.add_argument("--over", type=int, default=MOST, metavar="WORDS")
    parser.add_argument("--summary", action="store_true", help="a line for each page, no sentences")
    given = parser.parse_args()
    pages = given.pages or [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    for page in pages:
        found = sentences(page.read_text())
        lengths = [len(sentence.split()) for sentence in found] or [0]
        over = sorted((s for s in found if len(s.split()) > given.over), key=lambda s: -len(s.split()))
        mean = sum(lengths) / len(lengths)
        print(f"{page}: mean {mean:.1f} words, {len(over)} of {len(found)} over {given.over}")
        for sentence in () if given.summary else over:
            print(f"  {len(sentence.split())}: {sentence}")


if __name__ == "__main__":
    main()
