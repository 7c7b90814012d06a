"""The time-line of nodes as an SVG, still or as a film that stops at the whole picture. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from textwrap import wrap

from bftrainer.series.timeline import Occupancy, RescalePause, Stretch, Timeline

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
"""The trainers' colours, in turn: those of Okabe and Ito, which suit the colour-blind."""
USES = {Occupancy.IDLE: "#F4F4F4", Occupancy.BUSY: "#BBBBBB", Occupancy.OUT: "#333333"}
WIDTH, LEFT, RIGHT, TOP, ROW = 900, 70, 20, 50, 26
"""Pixels: of the picture, beside and above the nodes, and of a node's line."""
LINE, LETTERS = 19, 118
"""The height of a line of text, and how many letters it has."""
MARKS = {
    "join": ("M-5,8 L0,0 L5,8 Z", "#009E73", "nodes joined"),
    "leave": ("M-5,0 L0,8 L5,0 Z", "#0072B2", "a node given back"),
    "loss": ("M-4,0 L4,8 M4,0 L-4,8", "#D55E00", "a node lost"),
    "restart": ("M-4,4 A4,4 0 1 1 0,8", "#8C6BB1", "from a checkpoint"),
}
FILM_S = 24.0
"""Seconds that a film lasts, whatever time it shows."""


@dataclass(frozen=True, slots=True)
class Chapter:
    """A chapter from a time (Unix seconds) on: a heading above the nodes, and a text below them."""

    begin: float
    heading: str
    text: str


def svg(
    line: Timeline, trainers: Mapping[int, str], chapters: Sequence[Chapter], *, title: str, film: bool
) -> str:
    """Return the picture of a time-line; `trainers` are names by id. With `film`, what happens appears in the
    order of time."""
    texts = [(c, wrap(c.text, LETTERS)) for c in chapters]
    bottom = TOP + ROW * len(line.nodes)
    height = bottom + 68 + LINE + sum(LINE * (len(lines) + 0.5) for _, lines in texts)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" '
        f'font-family="sans-serif" font-size="13" role="img"><title>{escape(title)}</title>',
        f'<rect width="{WIDTH}" height="{height:.0f}" fill="white"/>',
        *([_film_style(line, chapters)] if film else []),
        f'<text x="{LEFT}" y="16" font-weight="bold">{escape(title)}</text>',
        *_nodes(line, film=film),
        *_headings(line, chapters, bottom),
        *_marks(line, bottom),
        *_axis(line, bottom),
        *_legend(line, trainers, bottom + 46),
        *_texts(texts, bottom + 76 + LINE),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _x(line: Timeline, time: float) -> float:
    span = max(1e-9, line.end - line.begin)
    return LEFT + (time - line.begin) / span * (WIDTH - LEFT - RIGHT)


def _film_style(line: Timeline, chapters: Sequence[Chapter]) -> str:
    """The rules that uncover the nodes from left to right, and let texts and marks appear in time."""
    span = max(1e-9, line.end - line.begin)
    delays = [max(0.0, c.begin - line.begin) / span * FILM_S for c in chapters]
    rules = [f".c{i}{{animation:show .4s {delay:.2f}s both}}" for i, delay in enumerate(delays)]
    rules += [
        f".m{i}{{animation:show .2s {(r.time - line.begin) / span * FILM_S:.2f}s both}}"
        for i, r in enumerate(line.rescales)
    ]
    return (
        "<style>@keyframes show{from{opacity:0}to{opacity:1}}"
        "@keyframes grow{from{transform:scaleX(0)}to{transform:scaleX(1)}}"
        f".grow{{transform-origin:{LEFT}px 0;animation:grow {FILM_S:g}s linear both}}"
        f"{''.join(rules)}</style>"
    )


def _nodes(line: Timeline, *, film: bool) -> Iterator[str]:
    if film:
        yield (
            f'<clipPath id="past"><rect class="grow" x="{LEFT}" y="0" width="{WIDTH - LEFT - RIGHT}" '
            f'height="{TOP + ROW * len(line.nodes)}"/></clipPath>'
        )
    yield '<g clip-path="url(#past)">' if film else "<g>"
    for i, stretches in enumerate(line.nodes.values()):
        yield from (_stretch(line, own, TOP + i * ROW) for own in stretches)
    yield "</g>"
    for i, node in enumerate(line.nodes):
        yield f'<text x="{LEFT - 8}" y="{TOP + i * ROW + 17}" text-anchor="end">{escape(node[:9])}</text>'


def _stretch(line: Timeline, own: Stretch, y: float) -> str:
    x, end = _x(line, own.begin), _x(line, own.end)
    opacity = ' fill-opacity="0.3"' if own.use is Occupancy.STARTING else ""
    return f'<rect x="{x:.1f}" y="{y + 2}" width="{end - x:.1f}" height="{ROW - 4}" {_fill(own)}{opacity}/>'


def _fill(own: Stretch) -> str:
    colour = USES.get(own.use) or COLOURS[((own.trainer or 1) - 1) % len(COLOURS)]
    return f'fill="{colour}"'


def _headings(line: Timeline, chapters: Sequence[Chapter], bottom: float) -> Iterator[str]:
    for i, chapter in enumerate(chapters):
        x = _x(line, max(line.begin, chapter.begin))
        yield (
            f'<g class="c{i}"><path d="M{x:.1f},{TOP - 20} V{bottom + 12}" stroke="#888" '
            f'stroke-dasharray="2 3"/><text x="{x + 4:.1f}" y="{TOP - 8}">'
            f"{escape(chapter.heading)}</text></g>"
        )


def _marks(line: Timeline, bottom: float) -> Iterator[str]:
    for i, r in enumerate(line.rescales):
        if r.kind in MARKS:
            yield (
                f'<g class="m{i}" transform="translate({_x(line, r.time):.1f} {bottom + 4})">{_mark(r.kind)}'
                f"<title>{_said(r)}</title></g>"
            )


def _mark(kind: str) -> str:
    path, colour, _ = MARKS[kind]
    filled = path.endswith("Z")
    paint = f'fill="{colour}"' if filled else f'fill="none" stroke="{colour}" stroke-width="2"'
    return f'<path d="{path}" {paint}/>'


def _said(r: RescalePause) -> str:
    return f"{MARKS[r.kind][2]}: {r.pause_s * 1e3:,.0f} ms, {r.lost_steps:,} steps lost"


def _axis(line: Timeline, bottom: float) -> Iterator[str]:
    span = line.end - line.begin
    step = next((s for s in (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800) if span / s <= 10), 3600)
    for second in range(0, int(span) + 1, step):
        x = _x(line, line.begin + second)
        yield f'<text x="{x:.1f}" y="{bottom + 28}" text-anchor="middle" fill="#555">{second} s</text>'


def _legend(line: Timeline, trainers: Mapping[int, str], y: float) -> Iterator[str]:
    ids = sorted({s.trainer for own in line.nodes.values() for s in own if s.trainer is not None})
    samples = [
        (Stretch(0, 0, Occupancy.TRAINING, id_), trainers.get(id_, f"trainer {id_}")) for id_ in ids[:4]
    ]
    samples += [(Stretch(0, 0, Occupancy.STARTING, ids[0] if ids else 1), "starting")]
    samples += [(Stretch(0, 0, use), use.value) for use in USES]
    x = float(LEFT)
    for own, word in samples:
        opacity = ' fill-opacity="0.3"' if own.use is Occupancy.STARTING else ""
        yield f'<rect x="{x:.0f}" y="{y - 10}" width="12" height="12" {_fill(own)}{opacity}/>'
        yield f'<text x="{x + 17:.0f}" y="{y}">{escape(word[:20])}</text>'
        x += 34 + 7 * len(word[:20])
    x, y = float(LEFT), y + LINE
    for kind in dict.fromkeys(r.kind for r in line.rescales if r.kind in MARKS):
        yield f'<g transform="translate({x + 5:.0f} {y - 8})">{_mark(kind)}</g>'
        yield f'<text x="{x + 15:.0f}" y="{y}">{MARKS[kind][2]}</text>'
        x += 32 + 7 * len(MARKS[kind][2])


def _texts(texts: Sequence[tuple[Chapter, Sequence[str]]], y: float) -> Iterator[str]:
    for i, (_, lines) in enumerate(texts):
        spans = "".join(
            f'<tspan x="{LEFT}" dy="{LINE if n else 0}">{escape(text)}</tspan>'
            for n, text in enumerate(lines)
        )
        yield f'<text class="c{i}" y="{y:.0f}">{spans}</text>'
        y += LINE * (len(lines) + 0.5)
