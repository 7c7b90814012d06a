"""The time-line of nodes as text: a line for each node, a mark for each rescale."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby

from rich.console import Console
from rich.text import Text

from bftrainer.cli.shared.terminal import printable
from bftrainer.model.text import duration
from bftrainer.series.timeline import Occupancy, RescalePause, Stretch, Timeline

STYLES = ("blue", "yellow", "green", "magenta", "cyan", "red")
"""The trainers' colours, in turn."""
LEAST_COLUMNS = 20
NAME_COLUMNS = 16
"""A longer name of a node is cut."""
MARKS = {"join": ("▲", "^"), "leave": ("▼", "v"), "loss": ("✖", "x"), "restart": ("↻", "r")}
"""Marks of rescales, in Unicode and in ASCII."""
WORDS = {
    "join": "nodes joined",
    "leave": "nodes given back",
    "loss": "a node lost",
    "restart": "from a checkpoint",
}
TRAINERS = frozenset({Occupancy.STARTING, Occupancy.TRAINING})
"""The uses of nodes that trainers have."""
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def letter(trainer: int | None) -> str:
    """Return the letter that stands for a trainer where there are no colours."""
    return "?" if trainer is None else LETTERS[(trainer - 1) % len(LETTERS)]


def style(trainer: int | None) -> str:
    """Return a trainer's colour."""
    return "" if trainer is None else STYLES[(trainer - 1) % len(STYLES)]


def nodes_text(
    line: Timeline, trainers: Mapping[int, str], console: Console, rows: int = 64, *, ends_now: bool = False
) -> Text:
    """Return a time-line as wide as the console, of `rows` nodes at most, those first that trainers had;
    `trainers` are names by id. The times below count from the begin, or back from now (`ends_now`)."""
    ascii_only = console.options.ascii_only
    signs = Signs(ascii_only=ascii_only, plain=ascii_only or not console.color_system)
    wide = min(NAME_COLUMNS, max((len(printable(node)) for node in line.nodes), default=0))
    columns = max(LEAST_COLUMNS, console.width - wide - 2)
    text = Text()
    for node in _chosen(line, rows):
        text.append(f"{printable(node)[:wide]:>{wide}} ")
        for stretch, alike in groupby(columns_of(line, node, columns)):
            sign, own = signs.of(stretch)
            text.append(sign * len(list(alike)), own)
        text.append("\n")
    if len(line.nodes) > rows:
        text.append(f"{len(line.nodes) - rows:,} more nodes: bftrainer pool\n", "dim")
    marks = marks_of(line, columns)
    row = "".join(MARKS[marks[at].kind][ascii_only] if at in marks else " " for at in range(columns))
    text.append(f"{' ' * wide} {row}\n", "bold")
    text.append(f"{' ' * wide} {axis(line.end - line.begin, columns, ends_now=ends_now)}\n", "dim")
    return text.append_text(_legend(line, trainers, signs))


def columns_of(line: Timeline, node: str, columns: int) -> list[Stretch | None]:
    """Return for each column the stretch of a node in its middle."""
    each = (line.end - line.begin) / columns
    return [line.at(node, line.begin + (i + 0.5) * each) for i in range(columns)]


def marks_of(line: Timeline, columns: int) -> dict[int, RescalePause]:
    """Return the last rescale of each column."""
    each = max(1e-9, line.end - line.begin) / columns
    return {min(columns - 1, int((r.time - line.begin) / each)): r for r in line.rescales if r.kind in MARKS}


@dataclass(frozen=True, slots=True)
class Signs:
    """The character of each use of a node; `plain`: a letter for each trainer, as there are no colours."""

    ascii_only: bool
    plain: bool

    def of(self, stretch: Stretch | None) -> tuple[str, str]:
        """Return the character of a stretch, and its style."""
        if stretch is None:
            return " ", ""
        own = style(stretch.trainer)
        match stretch.use:
            case Occupancy.TRAINING:
                return (letter(stretch.trainer) if self.plain else "█"), own
            case Occupancy.STARTING:
                return ("+" if self.ascii_only else "░"), own
            case Occupancy.IDLE:
                return ("." if self.ascii_only else "·"), "dim"
            case Occupancy.BUSY:
                return ("-" if self.ascii_only else "─"), "dim"
            case Occupancy.OUT:
                return "x", "red"


def axis(span_s: float, columns: int, *, ends_now: bool = False) -> str:
    """Return the line of times below columns that stand for `span_s` seconds: begin, middle and end."""
    begin, middle, end = "0 s", f"{span_s / 2:.0f} s", f"{span_s:.0f} s"
    if ends_now:
        begin, middle, end = f"{duration(span_s)} ago", f"{duration(span_s / 2)} ago", "now"
    gap = " " * max(1, columns // 2 - len(begin))
    rest = columns - len(begin) - len(gap) - len(middle) - len(end)
    return f"{begin}{gap}{middle}{' ' * max(1, rest)}{end}"


def _chosen(line: Timeline, rows: int) -> list[str]:
    """The nodes to show, in order; where they are too many, those that trainers had."""
    used = {node for node, own in line.nodes.items() if any(s.use in TRAINERS for s in own)}
    kept = set(sorted(line.nodes, key=lambda node: node not in used)[:rows])
    return [node for node in line.nodes if node in kept]


def _legend(line: Timeline, trainers: Mapping[int, str], signs: Signs) -> Text:
    stretches = [s for own in line.nodes.values() for s in own]
    text = Text()
    for id_ in sorted(
        {s.trainer for s in stretches if s.use is Occupancy.TRAINING and s.trainer is not None}
    ):
        text.append(*signs.of(Stretch(0, 0, Occupancy.TRAINING, id_)))
        text.append(f" {printable(trainers.get(id_, f'trainer {id_}'))}  ")
    for use in dict.fromkeys(s.use for s in stretches if s.use is not Occupancy.TRAINING):
        text.append(*signs.of(Stretch(0, 0, use)))
        text.append(f" {use.value}  ")
    for kind in dict.fromkeys(r.kind for r in line.rescales if r.kind in MARKS):
        text.append(f"{MARKS[kind][signs.ascii_only]} {WORDS[kind]}  ")
    text.rstrip()
    return text
