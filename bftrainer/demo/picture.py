"""The picture of a demonstration: its nodes over time with its acts, as an SVG."""

from __future__ import annotations

from pathlib import Path

from bftrainer.demo.view import DaemonView
from bftrainer.errors import BftrainerError
from bftrainer.series.timeline import timeline
from bftrainer.series.timeline_svg import Chapter, svg


def draw(view: DaemonView, path: Path) -> None:
    """Draw all that a view shows into a file, as a film that ends with the whole picture.

    Raises:
        BftrainerError: The file cannot be written.
    """
    begin = view.now - max(1.0, view.elapsed_s)
    line = timeline(view.events, view.pauses, view.pool["nodes"], begin, view.now)
    acts: dict[int, list[tuple[float, str, str]]] = {}
    for told in view.told:
        acts.setdefault(told.act, []).append((begin + told.at_s, told.title, told.text))
    chapters = [
        Chapter(
            said[0][0],
            f"{act}. {said[0][1]}",
            f"{act}. {' '.join(text for _, _, text in said)}",
        )
        for act, said in acts.items()
        if act
    ]
    names = {t["id"]: t["name"] for t in view.trainers}
    text = svg(line, names, chapters, title="bftrainer demo: who had which node when", film=True)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise BftrainerError(
            f"--picture {path}: {error.strerror or error}; write to another place"
        ) from error
