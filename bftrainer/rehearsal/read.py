"""Reads what the recorder has written in the processes of a run. Text in, a record out."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bftrainer.rehearsal.records import Array, Key, Prints, RunRecord, StartFacts, StepFacts, distance

Event = dict[str, Any]


@dataclass(slots=True)
class ProcessEvents:
    """The events of one process, with the step of the whole training for each of its own steps."""

    events: list[Event]
    final: Mapping[str, Array] = field(default_factory=dict)

    def number(self) -> None:
        """Give each step its place in the training (`at`), as far as the script or the library tells it.
        Another optimizer than the first may step more seldom: its steps belong to those of the first."""
        offset, since = 0, list[Event]()  # steps since the script last reported its place
        turn = 0  # steps of the first optimizer in this process
        for event in self.events:
            if event["event"] == "step":
                turn = event["n"] if event["opt"] == 0 else turn
                event["n"] = turn
            if event["event"] == "said" and event["kind"] == "moved":
                if own := [each for each in since if each["opt"] == 0]:
                    offset = event["step"] - own[-1]["n"]
                    for each in since:
                        each["at"] = offset + each["n"]
                since.clear()
            elif event["event"] == "step" and event["at"] is None:
                event["at"] = offset + event["n"]
                since.append(event)

    def shift(self, known: dict[str, int]) -> None:
        """Handle a script and library that do not report its place: it goes on after the step with the
        weights it begins with. `known`: such steps of the processes before, by weights; its own are added."""
        steps = [event for event in self.events if event["event"] == "step" and event["opt"] == 0]
        first = next((e for e in self.events if e["event"] == "initial" and e["opt"] == 0), None)
        tells = any(e["event"] == "said" and e["kind"] == "moved" for e in self.events)
        if first is not None and not tells and steps and steps[0]["before"] is None:
            offset = known.get(_weights(first), 0)
            for event in self.events:
                if event["event"] == "step":
                    event["at"] += offset
        for event in steps:
            known.setdefault(_weights(event), event["at"])


def _weights(event: Event) -> str:
    """The weights that an event has, as a key."""
    return json.dumps(event["params"])


def processes_of(folder: Path) -> list[ProcessEvents]:
    """The processes of a run whose records lie in a folder, in the order of their starts. A line that a
    process could not finish is left out."""
    found = []
    for path in sorted(folder.glob("*.jsonl")):
        events = []
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                events.append(json.loads(line))
            except ValueError:
                continue
        final = path.with_suffix(".npz")
        kept: dict[str, Array] = {}
        if final.exists():
            with np.load(final) as arrays:
                kept = {name: arrays[name] for name in arrays.files}
        found.append(ProcessEvents(events=events, final=kept))
    return found


def recorded(
    name: str, nodes: int, processes: Sequence[ProcessEvents], events: Sequence[str] = (), **more: Any
) -> RunRecord:
    """The record of a run from the events of its processes. `events`: what was done to it; `more`: what is
    known otherwise."""
    known: dict[str, int] = {}
    for process in processes:
        process.number()
        process.shift(known)
    firsts = [event for each in processes for event in each.events if event["event"] == "initial"]
    first = next((event for event in firsts if event["opt"] == 0), {})
    figures, reported = _figures(processes)
    last = _last(processes)
    final_event = next((e for e in reversed(last.events) if e["event"] == "final"), {}) if last else {}
    return RunRecord(
        name=name,
        nodes=nodes,
        steps=_steps(processes, first.get("sizes", ())),
        starts=_starts(processes),
        names=first.get("names", ()),
        sizes=first.get("sizes", ()),
        kinds=frozenset(kind for event in firsts for kind in event["kinds"]),
        eps=max((event["eps"] for event in firsts), default=0.0),
        final=last.final if last else {},
        variables=final_event.get("vars", {}),
        unused=final_event.get("unused", ()),
        figures=figures,
        reported=reported,
        taken=sum(
            e["event"] == "step" and e["opt"] == 0 and e["rank"] == 0 for p in processes for e in p.events
        ),
        batch=next((e["before"] for p in processes for e in p.events if _is_second(e)), None),
        warned=tuple(
            dict.fromkeys(text for p in processes for e in p.events for text in e.get("warned") or ())
        ),
        trouble=next((e["why"] for p in processes for e in p.events if e["event"] == "error"), ""),
        events=(*events, *_kills(processes)),
        **more,
    )


def _is_second(event: Event) -> bool:
    """True if an event is the second step of an elastic.Run, before which one step's samples were taken."""
    return event["event"] == "step" and event["at"] == 2 and bool(event["before"])


def _kills(processes: Iterable[ProcessEvents]) -> list[str]:
    """Ranks that killed themselves, in words, in the order of time."""
    kills = sorted(
        (event["time"], event["rank"], event["at"], event.get("ended", False))
        for process in processes
        for event in process.events
        if event["event"] == "killed"
    )
    return [
        f"rank {rank} killed {'when its script had ended' if ended else f'after step {at}'}"
        for _, rank, at, ended in kills
    ]


def _steps(processes: Sequence[ProcessEvents], sizes: Sequence[int]) -> dict[Key, StepFacts]:
    """Each step as it was last taken; what it replaces was lost and repeated."""
    taken: dict[Key, dict[int, Event]] = defaultdict(dict)
    for process in processes:
        for event in process.events:
            if event["event"] == "step" and event["whole"]:
                ranks = taken[event["opt"], event["at"]]
                before = ranks.get(event["rank"])
                if before is None or event["time"] >= before["time"]:
                    ranks[event["rank"]] = event
    together = {key: _together(ranks) for key, ranks in sorted(taken.items())}
    missed = _missed(processes)
    return {key: _facts(events, sizes, _without(key, events, missed)) for key, events in together.items()}


def _missed(processes: Iterable[ProcessEvents]) -> dict[tuple[int, int, int], Sequence[str]]:
    """The samples of ranks that lost a member in a step, the last time: by step, size and rank."""
    broken = [event for each in processes for event in each.events if event["event"] == "broken"]
    broken.sort(key=lambda event: event["time"])
    return {(event["at"], event["size"], event["rank"]): event["rows"] for event in broken}


def _without(
    key: Key, events: Sequence[Event], missed: Mapping[tuple[int, int, int], Sequence[str]]
) -> list[Sequence[str]]:
    """The samples of a step whose ranks have not stepped themselves: they got the state of those who had,
    because a member was lost in between."""
    optimizer, step = key
    size, here = events[0]["size"], {event["rank"] for event in events}
    absent = [rank for rank in range(size) if rank not in here and not optimizer]
    return [missed[step, size, rank] for rank in absent if (step, size, rank) in missed]


def _together(ranks: Mapping[int, Event]) -> list[Event]:
    """The events of the ranks that took a step together the last time, in the order of ranks."""
    latest = max(ranks.values(), key=lambda event: event["time"])
    found = [event for rank, event in sorted(ranks.items()) if rank < max(latest["size"], 1)]
    return [event for event in found if event["size"] == latest["size"]]


def _facts(events: Sequence[Event], sizes: Sequence[int], missed: Sequence[Sequence[str]]) -> StepFacts:
    first = events[0]
    weights = prints(first["params"])
    own = sizes if first["opt"] == 0 else ()
    apart = [float(distance(weights, prints(each["params"]), own).max()) for each in events[1:]]
    counts: list[Counter[str]] = [Counter(rows) for rows in (*(each["rows"] for each in events), *missed)]
    rows = sum(counts, Counter[str]())
    seen = [count for count in counts if count]
    return StepFacts(
        ranks=len(counts),
        weights=weights,
        gradients=prints([row or [0.0] * 4 for row in first["grads"]]),
        settings=first["hyper"],
        rows=rows,
        variables=first["vars"],
        apart=max(apart, default=0.0),
        shared=len(seen) > 1 and all(count == seen[0] for count in seen),
    )


def prints(rows: Sequence[Sequence[float]]) -> Prints:
    """Fingerprints as an array; what is not finite is very large."""
    found = np.asarray(rows, dtype=np.float64)
    return np.nan_to_num(found, nan=1e300, posinf=1e300, neginf=-1e300)


def _starts(processes: Iterable[ProcessEvents]) -> tuple[StartFacts, ...]:
    """Starts of processes of rank 0 that had the state before their first step."""
    found = []
    for process in processes:
        initial = next((e for e in process.events if e["event"] == "initial" and e["opt"] == 0), None)
        step = next((e for e in process.events if e["event"] == "step" and e["opt"] == 0), None)
        if initial is not None and step is not None and step["rank"] == 0 and step["whole"]:
            found.append(StartFacts(step=step["at"], weights=prints(initial["params"])))
    return tuple(found)


def _last(processes: Sequence[ProcessEvents]) -> ProcessEvents | None:
    """The process whose final state is the run's: rank 0's, or the one that came furthest."""
    ended = [p for p in processes if p.final and any(e["event"] == "final" for e in p.events)]
    if not ended:
        return None

    def order(process: ProcessEvents) -> tuple[int, int, float]:
        final = next(e for e in reversed(process.events) if e["event"] == "final")
        furthest = max((e["at"] for e in process.events if e["event"] == "step"), default=0)
        return furthest, -final["rank"], final["time"]

    return max(ended, key=order)


def _figures(
    processes: Iterable[ProcessEvents],
) -> tuple[dict[str, dict[int, list[float]]], dict[str, dict[int, float]]]:
    """Values given with steps, by name, step and rank; and those that rank 0 reported apart from steps."""
    given: dict[str, dict[int, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    told: dict[str, dict[int, float]] = defaultdict(dict)
    for process in processes:
        at, rank, waiting = 0, 0, list[Event]()
        for event in process.events:
            if event["event"] == "step":
                at, rank = event["at"], event["rank"]
                for early in waiting:  # said in the step, before it was taken
                    for name, value in early["metrics"].items():
                        given[name][at][rank] = value
                waiting.clear()
            if event["event"] != "said" or event["kind"] not in ("figures", "moved"):
                continue
            if event["kind"] == "figures" and not event["now"]:
                waiting.append(event)
            elif event["kind"] == "moved":
                for name, value in event["metrics"].items():
                    given[name][event["step"]][rank] = value
            elif rank == 0:
                for name, value in event["metrics"].items():
                    told[name][at] = value
    figures = {
        name: {at: [value for _, value in sorted(ranks.items())] for at, ranks in steps.items()}
        for name, steps in given.items()
    }
    return figures, {name: dict(steps) for name, steps in told.items()}
