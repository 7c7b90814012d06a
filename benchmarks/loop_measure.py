"""One condition of `loop.py`: the daemon is started, attacked and measured."""

from __future__ import annotations

import asyncio
import contextlib
import json
import statistics
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import aiohttp
from loop_conditions import SUBMITTED, Condition, Options

from tests.support.hostile.world import Watch, World

TARGET_S = 0.05
SETTLE_S = 12.0
"""After its start, the local scheduler reads the whole process table at every poll for a while."""
ASK_S = 0.5
ANSWER_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The measurements; pairs are median and maximum. `over`: turns of more than `TARGET_S`, `own` time."""

    turns: int
    p99_s: float
    longest_s: float
    longest_own_s: float
    longest_cpu_s: float
    over: int
    jobs: int
    seen_s: tuple[float, float]
    came_s: tuple[float, float]
    memory_mb: float
    alive: bool
    trained: bool
    reasons: list[str]
    slowest: list[str]
    submitted_s: list[float]  # of another user beside the attack; those that were refused are -1

    def as_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return asdict(self)


@dataclass(slots=True)
class Readiness:
    """The answers of /readyz, asked again and again."""

    said: Counter[str] = field(default_factory=Counter)

    @contextlib.contextmanager
    def asked(self, world: World) -> Iterator[None]:
        """Ask until the end of the block."""
        over = threading.Event()
        asking = threading.Thread(target=lambda: asyncio.run(self._ask(world, over)))
        asking.start()
        try:
            yield
        finally:
            over.set()
            asking.join()

    async def _ask(self, world: World, over: threading.Event) -> None:
        while not over.is_set():
            try:
                connector = aiohttp.UnixConnector(path=str(world.socket))
                timeout = aiohttp.ClientTimeout(total=ANSWER_S)
                async with (
                    aiohttp.ClientSession(connector=connector, timeout=timeout) as http,
                    http.get("http://bftrainer/readyz") as answer,
                ):
                    told = await answer.json()
                    self.said.update(told.get("reasons", [f"refused with {answer.status}"]))
            except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
                self.said[f"no answer ({type(error).__name__})"] += 1
            await asyncio.sleep(ASK_S)

    def reasons(self) -> list[str]:
        """Return the reasons, the most frequent first."""
        return [f"{count}x {reason}" for reason, count in self.said.most_common()]


def measured(condition: Condition, options: Options) -> Figures:
    """Take one condition."""
    world, readiness = World(condition.nodes, **condition.settings), Readiness()
    with contextlib.ExitStack() as stack:
        stack.callback(world.close)
        stack.enter_context(condition.prepared(world, options))
        world.start()
        world.good()
        time.sleep(SETTLE_S)
        with world.watched(every_s=2.0) as watch, readiness.asked(world):
            with condition.attack(world, options):
                time.sleep(options.seconds)
            memory_mb = world.memory_mb() if alive(world) else 0.0
        return _figures(world, watch, readiness, memory_mb)


def alive(world: World) -> bool:
    """Return whether the daemon still runs."""
    return world.daemon is not None and world.daemon.poll() is None


def _figures(world: World, watch: Watch, readiness: Readiness, memory_mb: float) -> Figures:
    is_alive = alive(world)
    with contextlib.suppress(AssertionError):
        world.until(
            lambda: len(watch.served()) == len(watch.jobs), 20 if is_alive else 0, "jobs have started"
        )
    turns = watch.turns()
    long = [turn for turn in turns if "wall_s" in turn]
    walls = sorted(turn["wall_s"] for turn in long)
    short = sum(turn["short"] for turn in turns if "short" in turn)
    beyond = (short + len(long)) // 100  # number of turns longer than the 99th percentile
    own = [_own_s(turn) for turn in long]
    return Figures(
        turns=short + len(long),
        p99_s=walls[-beyond - 1] if beyond < len(walls) else 0.001,
        longest_s=max(walls, default=0.0),
        longest_own_s=max(own, default=0.0),
        longest_cpu_s=max((turn["cpu_s"] for turn in long), default=0.0),
        over=sum(took > TARGET_S for took in own),
        jobs=len(watch.jobs),
        seen_s=_middle_and_most(watch.waits("seen")),
        came_s=_middle_and_most(watch.waits("arrived")),
        memory_mb=memory_mb,
        alive=is_alive,
        trained=_trained(world, watch) if is_alive else False,
        reasons=[*readiness.reasons(), *([] if is_alive else ["THE DAEMON HAS ENDED"])],
        submitted_s=_submitted(world),
        slowest=[_explained(turn) for turn in sorted(long, key=_own_s, reverse=True)[:10]],
    )


def _submitted(world: World) -> list[float]:
    file = world.root / SUBMITTED
    found = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    return [own["took_s"] if own["status"] == 201 else -1.0 for own in found]


def _own_s(turn: dict[str, Any]) -> float:
    """The length of a turn without the time in which other processes had the core."""
    return float(turn["wall_s"] - turn["robbed_s"])


def _trained(world: World, watch: Watch) -> bool:
    with contextlib.suppress(Exception):
        return world.samples() > watch.samples
    return False


def _middle_and_most(found: list[float]) -> tuple[float, float]:
    return (statistics.median(found), max(found)) if found else (0.0, 0.0)


def _explained(turn: dict[str, Any]) -> str:
    told = {name: f"{1e3 * turn[name]:.0f} ms" for name in ("wall_s", "cpu_s", "robbed_s")}
    return json.dumps(told | {"slow": turn.get("slow", []), "stack": turn.get("stack", "")})[:700]
