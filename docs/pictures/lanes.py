"""Draws the pictures of nodes over time that docs/pictures/lanes.toml describes, as SVG beside it."""

from __future__ import annotations

import sys
import tomllib
from html import escape
from pathlib import Path
from typing import Any

WIDTH, LEFT, ROW, TOP = 720, 90, 30, 34
KINDS = {
    "main": ("#8a8f98", "a job of the main scheduler"),
    "pilot": ("#c9b458", "a pilot holds the node"),
    "start": ("#f2b872", "starts and warms up"),
    "train": ("#2f7ebc", "trains"),
    "other": ("#6a51a3", "trains another trainer"),
    "claim": ("#e34a33", "left free for a main job"),
    "idle": ("#a3b1bb", "idle"),
    "disk": ("#41ab5d", "a checkpoint is written"),
}
STYLE = (
    "text{font:13px sans-serif;fill:#24292f}.in{fill:#fff;font-size:12px}"
    ".m{stroke:#57606a;stroke-dasharray:3 3}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.m{stroke:#9ea7b3}}"
)


def drawn(picture: dict[str, Any]) -> str:
    """A picture as SVG."""
    rows, end = picture["row"], picture["end"]
    bottom = TOP + ROW * len(rows)
    kinds = [k for k in KINDS if any(bar["kind"] == k for row in rows for bar in row["bars"])]
    height = bottom + 20 + 20 * ((len(kinds) + 2) // 3)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
        f"<title>{escape(picture['title'])}</title><style>{STYLE}</style>",
    ]
    for i, row in enumerate(rows):
        y = TOP + ROW * i
        parts.append(f'<text x="0" y="{y + 17}">{escape(row["name"])}</text>')
        parts += [_bar(bar, y, end) for bar in row["bars"]]
    for i, mark in enumerate(picture["marks"]):
        x, y = _x(mark["at"], end), 12 + 14 * (i % 2)
        parts.append(f'<line class="m" x1="{x}" x2="{x}" y1="{y + 4}" y2="{bottom}"/>')
        parts.append(f'<text x="{x + 3}" y="{y}">{escape(mark["text"])}</text>')
    for i, kind in enumerate(kinds):
        x, y = LEFT + 210 * (i % 3), bottom + 14 + 20 * (i // 3)
        parts.append(f'<rect x="{x}" y="{y - 10}" width="12" height="12" fill="{KINDS[kind][0]}"/>')
        parts.append(f'<text x="{x + 18}" y="{y}">{KINDS[kind][1]}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _bar(bar: dict[str, Any], y: int, end: float) -> str:
    x, right = _x(bar["from"], end), _x(bar["to"], end)
    size = f'width="{round(right - x, 1)}" height="22" rx="3"'
    rect = f'<rect x="{x}" y="{y}" {size} fill="{KINDS[bar["kind"]][0]}"/>'
    middle = round((x + right) / 2, 1)
    text = f'<text class="in" x="{middle}" y="{y + 15}" text-anchor="middle">{escape(bar["text"])}</text>'
    return rect + (text if bar["text"] else "")


def _x(at: float, end: float) -> float:
    return round(LEFT + (WIDTH - LEFT - 6) * at / end, 1)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    for each in tomllib.loads((folder / "lanes.toml").read_text(encoding="utf-8"))["picture"]:
        (folder / f"{each['name']}.svg").write_text(drawn(each), encoding="utf-8")
