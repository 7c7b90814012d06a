"""The script of the demonstration: four acts on a few nodes, with one trainer. Pure.

An act consists of beats. A beat gives orders, and lasts until what they are to cause has happened.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bftrainer.demo.view import DaemonView, Told

PLAYED = 4
"""Nodes that take part, at most."""
SEEN_S = 1.0
"""Seconds that an event is shown before the next one."""


@dataclass(frozen=True, slots=True)
class JobLine:
    """A line for the daemon's file of main jobs."""

    text: str


@dataclass(frozen=True, slots=True)
class KillPilot:
    """SIGKILL for the pilot that holds a node, and all that runs in it."""

    node: str


Order = JobLine | KillPilot


@dataclass(frozen=True, slots=True)
class Scene:
    """One look at the trainer: which nodes it trains on, which ones main jobs have, its rescales so far.

    `waits` has the time (s) that each main job has waited for our nodes.
    """

    at: float
    members: frozenset[str]
    busy: frozenset[str]
    step: int
    samples: int
    rate: float
    rescales: tuple[dict[str, Any], ...]
    waits: Mapping[str, float]

    @classmethod
    def of(cls, view: DaemonView, waits: Mapping[str, float]) -> Scene:
        """The scene that a view shows of its first trainer."""
        trainer = view.trainers[0]
        return cls(
            at=view.elapsed_s,
            members=frozenset(trainer["members"]),
            busy=frozenset(n["node"] for n in view.pool["nodes"] if n["state"] == "busy"),
            step=trainer["step"],
            samples=trainer["samples"],
            rate=trainer["rate"] or 0.0,
            rescales=tuple(p for p in view.pauses if p["trainer"] == trainer["id"]),
            waits=waits,
        )

    def since(self, first: Scene, *kinds: str) -> list[dict[str, Any]]:
        """The pauses of these kinds since an earlier scene."""
        return [p for p in self.rescales if p["kind"] in kinds and p not in first.rescales]


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """Orders, and what they are to cause: `until` it is seen. `told` is what a reader should have seen, from
    the scenes at the act's begin and now."""

    orders: tuple[Order, ...] = ()
    until: Callable[[Scene, Scene], bool]
    told: Callable[[Scene, Scene], str] | None = None
    seen_s: float = SEEN_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """A title, the cause in a sentence, and what happens."""

    title: str
    cause: str
    beats: tuple[Beat, ...]


@dataclass(frozen=True, slots=True)
class Play:
    """Progress of a script: the act and the beat, and since when its end is seen."""

    acts: tuple[Act, ...]
    act: int = 0
    beat: int = 0
    begun: bool = False
    first: Scene | None = None
    seen_at: float | None = None

    @property
    def over(self) -> bool:
        """Return whether all acts have been played."""
        return self.act == len(self.acts)

    @property
    def left(self) -> tuple[str, ...]:
        """The titles of the acts that are not over."""
        return tuple(act.title for act in self.acts[self.act :])

    def follow(self, scene: Scene) -> tuple[Play, tuple[Order, ...], tuple[Told, ...]]:
        """Go as far as a scene lets us. Returns the play, the orders to carry out, and what is to be said."""
        if self.over:
            return self, (), ()
        act = self.acts[self.act]
        beat, first = act.beats[self.beat], self.first or scene
        if not self.begun:
            cause = (self._tell(scene, act.cause),) if self.beat == 0 else ()
            return replace(self, begun=True, first=first), beat.orders, cause
        if self.seen_at is None and beat.until(first, scene):
            told = (self._tell(scene, beat.told(first, scene)),) if beat.told else ()
            return replace(self, seen_at=scene.at), (), told
        if self.seen_at is None or scene.at - self.seen_at < beat.seen_s:
            return self, (), ()
        last = self.beat + 1 == len(act.beats)
        after = (
            Play(self.acts, self.act + 1) if last else Play(self.acts, self.act, self.beat + 1, first=first)
        )
        return after, (), ()

    def _tell(self, scene: Scene, text: str) -> Told:
        return Told(at_s=scene.at, act=self.act, title=self.acts[self.act].title, text=text)


def curtain(units: Sequence[str]) -> tuple[JobLine, ...]:
    """The main jobs before the play: all nodes but the first have one."""
    others = units[PLAYED:]
    lines = [JobLine(f"take job-{node} {node}") for node in units[1:PLAYED]]
    return (*lines, *([JobLine(f"take job-others {' '.join(others)}")] if others else []))


def script(units: Sequence[str], name: str) -> tuple[Act, ...]:
    """Return the acts for the first of these nodes, two at least, with the trainer of this name."""
    nodes = tuple(units[:PLAYED])
    return (
        _warm(nodes, name),
        _grows(nodes, name),
        _gives(nodes, name),
        _loses(nodes, name),
        _all(nodes, name),
    )


def _warm(nodes: Sequence[str], name: str) -> Act:
    return Act(
        title="before",
        cause=f"A daemon starts, and {name} on {nodes[0]}, the only idle node: main jobs have all others.",
        beats=(Beat(until=lambda _, now: bool(now.members) and now.step > 0, seen_s=2 * SEEN_S),),
    )


def _grows(nodes: Sequence[str], name: str) -> Act:
    def told(first: Scene, now: Scene) -> str:
        grown = now.since(first, "join")
        times = len({p["generation"] for p in grown})
        return (
            f"{name} grew from {len(first.members)} to {len(now.members)} nodes in {_times(times)}, while it "
            f"trained; it stood still for {_ms(grown)} at most."
        )

    beats = [
        Beat(
            orders=(JobLine(f"end job-{node}"),),
            until=_trains_on(nodes[: i + 2]),
            told=told if node == nodes[-1] else None,
        )
        for i, node in enumerate(nodes[1:])
    ]
    return Act(
        title="grows",
        cause=f"Main jobs end on {_list(nodes[1:])}, one after the other: these nodes are idle, and {name} "
        "grows.",
        beats=tuple(beats),
    )


def _trains_on(nodes: Sequence[str]) -> Callable[[Scene, Scene], bool]:
    """Return whether the trainer is on these nodes, and all members have told of their last pause."""

    def seen(_: Scene, now: Scene) -> bool:
        told = [p["size"] for p in now.rescales if p["kind"] == "join"][-1:]
        return now.members.issuperset(nodes) and told == [len(now.members)]

    return seen


def _gives(nodes: Sequence[str], name: str) -> Act:
    node, job = nodes[-1], "main-job"

    def told(first: Scene, now: Scene) -> str:
        left = now.since(first, "leave", "loss")
        waited = f"after {now.waits[job]:.1f} s" if job in now.waits else "soon"
        return (
            f"The main job started {waited}. {name} left {node} between two steps and went on after "
            f"{_ms(left)}, with {_lost(left)}."
        )

    return Act(
        title="gives back",
        cause=f"A main job asks for {node}, where {name} trains; the main scheduler comes first.",
        beats=(
            Beat(
                orders=(JobLine(f"ask {job} {node}"),),
                until=lambda first, now: node in now.busy and bool(now.since(first, "leave", "loss")),
                told=told,
                seen_s=2 * SEEN_S,
            ),
            Beat(orders=(JobLine(f"end {job}"),), until=_trains_on([node])),
        ),
    )


def _loses(nodes: Sequence[str], name: str) -> Act:
    node = nodes[1]

    def told(first: Scene, now: Scene) -> str:
        lost = now.since(first, "loss")
        return (
            f"Its neighbours noticed, and went on after {_ms(lost)} with the state in their memory, with "
            f"{_lost(lost)}: nothing is lost while one node survives."
        )

    return Act(
        title="a node dies",
        cause=f"Everything that {name} has on {node} is killed with SIGKILL, as when a node crashes.",
        beats=(
            Beat(
                orders=(KillPilot(node),),
                until=lambda first, now: bool(now.since(first, "loss")),
                told=told,
            ),
            Beat(until=_trains_on([node])),
        ),
    )


def _all(nodes: Sequence[str], name: str) -> Act:
    one, others = nodes[0], nodes[1:]

    def told(first: Scene, now: Scene) -> str:
        steps = sum(p["lost_steps"] for p in now.since(first, "restart"))
        work_s = steps * first.samples / max(1, first.step) / first.rate if first.rate else 0.0
        return (
            f"No node had survived, so {name} goes on from its last checkpoint. The cost: it trains "
            f"{steps:,} steps again, {work_s:.1f} s of work."
        )

    return Act(
        title="loses all",
        cause="Main jobs take all nodes at one moment and without notice.",
        beats=(
            Beat(
                orders=(JobLine(f"take one {one}"), JobLine(f"take others {' '.join(others)}")),
                until=lambda _, now: not now.members and now.busy.issuperset(nodes),
                told=lambda _, now: f"{name} stands still at step {now.step:,}.",
                seen_s=2 * SEEN_S,
            ),
            Beat(
                orders=(JobLine("end one"),),
                until=lambda first, now: bool(now.members) and bool(now.since(first, "restart")),
                told=told,
            ),
            Beat(orders=(JobLine("end others"),), until=_trains_on(nodes)),
        ),
    )


def _ms(pauses: Sequence[Mapping[str, Any]]) -> str:
    return f"{max((p['pause_s'] for p in pauses), default=0.0) * 1e3:,.0f} ms"


def _lost(pauses: Sequence[Mapping[str, Any]]) -> str:
    lost = max((p["lost_steps"] for p in pauses), default=0)
    return f"{lost:,} steps lost" if lost else "no step lost"


def _times(count: int) -> str:
    return f"{count} step{'' if count == 1 else 's'}"


def _list(nodes: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(nodes[:-1]), nodes[-1])))
