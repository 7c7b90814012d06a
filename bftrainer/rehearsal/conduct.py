"""Conducts the runs of a rehearsal, with a daemon of its own on this machine."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bftrainer.api.client import DaemonError
from bftrainer.demo.session import DemoSession
from bftrainer.elastic.recorded.directions import VARIABLE, held_of, release_of
from bftrainer.errors import BftrainerError
from bftrainer.messages.trying import NO_NODES_HERE
from bftrainer.model.trainer import TrainerSpec
from bftrainer.rehearsal.runs import RunPlan, request
from bftrainer.rehearsal.scratch import ScratchCopy, copy

TICK_S = 0.05
SITE = """try:
    from bftrainer.elastic.recorded.hooks import install
    install()
except ImportError:
    pass
import importlib.machinery, importlib.util, os, sys
_here = os.path.dirname(os.path.abspath(__file__))
_spec = importlib.machinery.PathFinder.find_spec("sitecustomize", [p for p in sys.path if p != _here])
if _spec and _spec.loader:
    _spec.loader.exec_module(importlib.util.module_from_spec(_spec))
"""
"""A sitecustomize that has the recorder installed, then does what the machine's own does."""
SETTINGS = {"poll_s": 0.1, "rejoin_s": 0, "t_fwd_s": 3600, "max_failures": 1}
BLOCK = "a-place-taken"
"""A trainer that keeps a node until another run should grow."""


@dataclass(frozen=True, slots=True)
class Conducted:
    """A finished run: the daemon's last view of its trainer, what was done to it, and its output."""

    plan: RunPlan
    view: Mapping[str, Any]
    events: tuple[str, ...]
    copied: ScratchCopy
    folder: Path
    seconds: float


@dataclass(slots=True)
class _Under:
    """A run under way."""

    plan: RunPlan
    folder: Path
    copied: ScratchCopy
    body: dict[str, Any]
    trainer: int
    course: Iterator[None]
    began: float
    events: list[str] = field(default_factory=list)
    view: dict[str, Any] = field(default_factory=dict)


class Conductor:
    """Runs scripts of a spec in scratch folders below `root`, with `nodes` nodes of this machine."""

    def __init__(
        self,
        root: Path,
        spec: TrainerSpec,
        written: Mapping[str, Any],
        *,
        nodes: int,
        most_s: float,
        say: Callable[[str], None],
    ) -> None:
        self._root, self._spec, self._written, self._most_s, self._say = root, spec, written, most_s, say
        self._began = time.monotonic()
        site = root / "site"
        site.mkdir()
        (site / "sitecustomize.py").write_text(SITE, encoding="utf-8")
        own = dict(spec.env)
        threads = own.get("OMP_NUM_THREADS", "1")
        path = os.pathsep.join(filter(None, (str(site), own.get("PYTHONPATH", os.environ.get("PYTHONPATH")))))
        self._env = {VARIABLE: str(root), "PYTHONPATH": path, "OMP_NUM_THREADS": threads}
        log = root / "log.csv"
        lines = [f"0,1000000,n{i}" for i in range(1, nodes + 1)]
        log.write_text("\n".join(["idle_start,idle_end,node", *lines]) + "\n", encoding="utf-8")
        options = ("--scheduler", "local", "--nodes", str(nodes), "--gpus", "0", "--log", str(log))
        self._session = DemoSession(
            [*options, "--from", "1970-01-01T00:00:00", "--objective", "efficiency"],
            settings=SETTINGS,
            environ={"XDG_CONFIG_HOME": str(root), "CUDA_VISIBLE_DEVICES": ""},
        )
        self._client = self._session.client

    @property
    def seconds(self) -> float:
        """The seconds since the beginning."""
        return time.monotonic() - self._began

    def run(self, plans: Sequence[RunPlan]) -> list[Conducted]:
        """Have runs go on at the same time, and return when all have ended."""
        under = [self._begun(plan) for plan in plans]
        going = list(under)
        while going:
            for each in list(going):
                if next(each.course, self) is self:
                    going.remove(each)
            time.sleep(TICK_S)
        return [
            Conducted(
                each.plan,
                each.view,
                tuple(each.events),
                each.copied,
                each.folder,
                time.monotonic() - each.began,
            )
            for each in under
        ]

    def close(self) -> None:
        """End the daemon and all that it has started."""
        self._session.close()

    def _begun(self, plan: RunPlan) -> _Under:
        folder = self._root / plan.name
        folder.mkdir()
        plan.directions.write(folder)
        copied = copy(Path(self._spec.workdir), folder / "work")
        body = request(self._written, self._spec, plan, copied.folder, self._env)
        if plan.grows_to:
            self._block(plan.grows_to - plan.nodes)
        trainer = self._submit(body)
        under = _Under(plan, folder, copied, body, trainer, iter(()), time.monotonic())
        under.course = self._course(under)
        return under

    def _course(self, under: _Under) -> Iterator[None]:
        """Conducts one run; yields while it waits."""
        plan = under.plan
        if plan.grows_to:
            yield from self._grow(under)
        for step in plan.stops:
            yield from self._stop_and_resume(under, step)
        yield from self._until(under, lambda: bool(under.view.get("ended_at")))
        if not under.view.get("ended_at"):
            under.view["status"], under.view["reason"] = (
                "hangs",
                f"it had not ended after {self._most_s:.0f} s",
            )
            self._call("DELETE", f"trainers/{under.trainer}")

    def _grow(self, under: _Under) -> Iterator[None]:
        step = under.plan.joins_after
        yield from self._until(under, lambda: self._is_held(under, step))
        before = under.view.get("generation", 0)
        if not under.view.get("ended_at"):
            under.events.append(f"step {step}: a node joins")
            self._call("DELETE", f"trainers/{BLOCK}")
            yield from self._until(
                under, lambda: bool(under.view.get("ended_at")) or under.view["generation"] > before + 1
            )
        release_of(under.folder, step).touch()

    def _stop_and_resume(self, under: _Under, step: int) -> Iterator[None]:
        yield from self._until(under, lambda: self._is_held(under, step))
        release = release_of(under.folder, step)
        if under.view.get("ended_at"):
            release.touch()
            return
        under.events.append(f"step {step}: stopped, then resumed")
        self._call("DELETE", f"trainers/{under.trainer}")
        yield from self._until(
            under,
            lambda: (
                bool(under.view.get("ended_at"))
                or all(phase == "leaving" for phase in under.view["workers"].values())
            ),
        )
        release.touch()
        yield from self._until(under, lambda: self._has_stopped(under, step))
        if under.view["status"] == "cancelled":
            yield from self._resume(under)

    def _has_stopped(self, under: _Under, step: int) -> bool:
        """True if it has ended. On a busy machine the order reaches it late: if it is at another step that
        would hold it, it is released, or it would be killed before it can save."""
        for later in under.plan.stops:
            held = held_of(under.folder, later, 0)
            if later > step and held.exists():
                release_of(under.folder, later).touch()
                held.unlink()
        return bool(under.view.get("ended_at"))

    def _resume(self, under: _Under) -> Iterator[None]:
        """Submit it again from where it stands; its workers may still write what they have."""
        while True:
            try:
                under.trainer = self._submit(under.body, resume=under.trainer)
                return
            except DaemonError:
                if time.monotonic() - under.began > self._most_s:
                    raise
            yield

    def _is_held(self, under: _Under, step: int) -> bool:
        first = held_of(under.folder, step, 0)
        return bool(under.view.get("ended_at")) or first.exists()

    def _until(self, under: _Under, condition: Callable[[], bool]) -> Iterator[None]:
        """Look at the trainer until a condition holds, or the run takes too long."""
        while time.monotonic() - under.began < self._most_s:
            under.view = self._call("GET", f"trainers/{under.trainer}")
            if condition():
                return
            yield

    def _block(self, nodes: int) -> None:
        """Have another trainer keep `nodes` nodes."""
        body = {"name": BLOCK, "command": ["sleep", "100000"], "launcher": "torchrun", "weight": 1e5}
        self._submit({**body, "nodes": {"min": nodes, "max": nodes}})
        deadline = time.monotonic() + self._most_s
        while len(self._call("GET", f"trainers/{BLOCK}")["members"]) < nodes:
            if time.monotonic() > deadline:
                raise BftrainerError(
                    NO_NODES_HERE.say(who="the daemon of bftrainer try", why="gives out no nodes")
                )
            time.sleep(TICK_S)

    def _submit(self, body: Mapping[str, Any], resume: int | None = None) -> int:
        asked: dict[str, Any] = {"spec": json.dumps(body), "name": "rehearsal", "base": str(self._root)}
        if resume is not None:
            asked["resume"] = str(resume)
        return int(self._call("POST", "trainers", body=asked)["id"])

    def _call(self, method: str, path: str, **more: Any) -> Any:
        return self._client.call(method, path, **more)


@contextlib.contextmanager
def conducting(root: Path, spec: TrainerSpec, written: Mapping[str, Any], **more: Any) -> Iterator[Conductor]:
    """A conductor that is closed in the end."""
    conductor = Conductor(root, spec, written, **more)
    try:
        yield conductor
    finally:
        conductor.close()
