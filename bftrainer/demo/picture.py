"""The picture of a demonstration: its nodes over time with its acts, as an SVG; and its record.

python -m bftrainer.demo.picture docs/pictures/demo.json docs/pictures/demo.svg
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bftrainer.demo.view import DaemonView
from bftrainer.errors import BftrainerError
from bftrainer.messages.files.places import UNWRITABLE
from bftrainer.series.timeline import Occupancy, RescalePause, Stretch, Timeline, timeline
from bftrainer.series.timeline_svg import Chapter, svg
from bftrainer.traces.whole_file import write_whole

TITLE = "bftrainer demo: who had which node when"
RECORD = ".json"
"""The suffix of a file that gets the record, not the picture."""


@dataclass(frozen=True, slots=True)
class DemoRecord:
    """The data of a demonstration's picture: nodes over time, trainers' names by id, and a chapter for each
    act. Times are seconds since its begin."""

    line: Timeline
    names: Mapping[int, str]
    chapters: Sequence[Chapter]

    @classmethod
    def of(cls, view: DaemonView) -> DemoRecord:
        """The record of all that the last view of a demonstration shows."""
        begin = view.now - max(1.0, view.elapsed_s)
        events, pauses = (
            [{**row, "time": row["time"] - begin} for row in rows] for rows in (view.events, view.pauses)
        )
        line = timeline(events, pauses, view.pool["nodes"], 0.0, view.now - begin)
        acts = {told.act: [own for own in view.told if own.act == told.act] for told in view.told if told.act}
        chapters = [
            Chapter(said[0].at_s, f"{act}. {said[0].title}", f"{act}. {' '.join(own.text for own in said)}")
            for act, said in acts.items()
        ]
        return cls(line, {t["id"]: t["name"] for t in view.trainers}, chapters)

    @classmethod
    def read(cls, text: str) -> DemoRecord:
        """The record in a text that `json` has made."""
        found: dict[str, Any] = json.loads(text)
        line = found["line"]
        nodes = {
            node: tuple(Stretch(s["begin"], s["end"], Occupancy(s["use"]), s["trainer"]) for s in own)
            for node, own in line["nodes"].items()
        }
        pauses = tuple(RescalePause(**row) for row in line["rescales"])
        names = {int(id_): name for id_, name in found["names"].items()}
        chapters = [Chapter(**row) for row in found["chapters"]]
        return cls(Timeline(line["begin"], line["end"], nodes, pauses), names, chapters)

    def json(self) -> str:
        """The record as JSON."""
        return json.dumps(asdict(self), indent=1, default=str) + "\n"

    def svg(self) -> str:
        """The picture, as a film that stops at the whole of it."""
        return svg(self.line, self.names, self.chapters, title=TITLE, film=True)


def draw(view: DaemonView, path: Path) -> None:
    """Draw all that a view shows into a file; where it ends in `RECORD`, write the record instead.

    Raises:
        BftrainerError: The file cannot be written.
    """
    record = DemoRecord.of(view)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, record.json() if path.suffix == RECORD else record.svg())
    except OSError as error:
        raise BftrainerError(UNWRITABLE.say(path=f"--picture {path}", why=error.strerror or error)) from error


def main(source: str, target: str) -> None:
    """Draw the record in one file into another."""
    record = DemoRecord.read(Path(source).read_text(encoding="utf-8"))
    Path(target).write_text(record.svg(), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
