"""The messages that launchers send to agents; `wire.messages.to_agent` says what they mean. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bftrainer.launch.job import LaunchedTrainer, WorkerView
from bftrainer.model.actions import Regroup
from bftrainer.model.backoff import backoff_s
from bftrainer.model.reports import Message
from bftrainer.model.trainer import TrainerSpec
from bftrainer.wire.messages.from_agent import Report

MAX_DELAY_S = 30.0
NONE: Mapping[str, WorkerView] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Folders:
    """`trainer_dir`: below a spec's working directory, may contain {user}.

    `store_id` tells the trainers of one daemon's store from those of others, which may have the same numbers.
    """

    trainer_dir: str
    store_id: str

    def logs(self, trainer: int, spec: TrainerSpec) -> Path:
        """The folder in which a trainer's workers write what they print, one file a node.

        It belongs to the trainer's user, and only that user's processes open it.
        """
        place = Path(spec.workdir, self.trainer_dir.format(user=spec.user))
        return place / f"{trainer}-{spec.name}-{self.store_id}"

    def checkpoints(self, trainer: int, spec: TrainerSpec) -> Path:
        """The folder of a trainer's checkpoints: the one of its spec, or one among its logs."""
        return Path(spec.checkpoint_dir or self.logs(trainer, spec) / "checkpoints")


def warm(spec: TrainerSpec) -> Message:
    """A trainer's program may be started soon."""
    return {"type": "warm", **_program(spec)}


@dataclass(frozen=True, slots=True, kw_only=True)
class StartConfig:
    """Settings by which a launcher starts all its workers, see `wire.messages.to_agent.Start`."""

    grace_s: float
    write_s: float = 0.0
    gated: bool
    warm: bool
    metrics: int


def start(launched: LaunchedTrainer, node: str, folders: Folders, how: StartConfig) -> Message:
    """Start a trainer's worker; the more attempts have failed before, the later."""
    trainer, spec, view = launched.id, launched.spec, launched.workers[node]
    folder = folders.logs(trainer, spec)
    return {
        "type": "start",
        "trainer": trainer,
        "generation": view.generation,
        **_program(spec),
        "log": str(folder / f"{node}.log"),
        "workers": view.workers,
        "delay_s": delay_s(view),
        "grace_s": how.grace_s,
        "write_s": how.write_s,
        "gated": how.gated,
        "warm": how.warm,
        "turns": spec.takes_turns,
        "worker": {
            "samples": spec.samples,
            "progress": spec.progress,
            "checkpoint_dir": str(folders.checkpoints(trainer, spec)),
            "checkpoint_every_s": spec.checkpoint_every_s,
            "batch": dict(spec.batch),
            "partial": dict(spec.partial),
            "max_metrics": how.metrics,
            "name": spec.name,
            "folder": str(folder),
            "n_min": spec.n_min,
            "n_max": spec.n_max,
            "sizes": list(spec.sizes.listed),
            "multiple_of": spec.sizes.multiple_of,
        },
    }


def delay_s(view: WorkerView) -> float:
    """Seconds before an agent starts a worker: the longer, the more attempts have failed."""
    return backoff_s(1.0, view.attempt - 1, MAX_DELAY_S) if view.attempt else 0.0


def go(
    trainer: int, view: WorkerView, env: Mapping[str, str], each: Sequence[Mapping[str, str]] = ()
) -> Message:
    """Let a gated worker run its script in run `view.run`, with `env` added to the environment of all its
    processes, and what `each` has of its own. A node may have a thousand."""
    if len(each) == 1:
        env, each = {**env, **each[0]}, ()
    return {
        "type": "go",
        "trainer": trainer,
        "generation": view.generation,
        "run": view.run,
        "env": dict(env),
        **({"each": list(each)} if each else {}),
    }


def regroup(
    action: Regroup, members: Sequence[str], grace_s: float, views: Mapping[str, WorkerView] = NONE
) -> Message:
    """These are the members of a generation. Those that leave are killed after `grace_s`. `views` says how
    many processes run on each."""
    counts = [views[node].workers if node in views else 1 for node in members]
    several = {"workers": counts} if any(count != 1 for count in counts) else {}
    return {
        "type": "regroup",
        "trainer": action.trainer,
        "generation": action.generation,
        "members": list(members),
        "leaving": list(action.leaving),
        "grace_s": grace_s,
        **several,
    }


def kv(trainer: int, generation: int, key: Any, value: Any) -> Message:
    """An entry of a generation's rendezvous, from another member."""
    return {"type": "kv", "trainer": trainer, "generation": generation, "key": key, "value": value}


def busy(trainer: int, node: str, seconds: float) -> Message:
    """The member on `node` is busy for at most `seconds`; 0: not any more."""
    return {"type": "busy", "trainer": trainer, "node": node, "seconds": seconds}


def stop(trainer: int, grace_s: float, *, leader_first: bool = False) -> Message:
    """End a trainer's worker; it has `grace_s` to write down what it has. With `leader_first` the first of a
    node's processes alone is told first, the others when it has ended."""
    first = {"leader_first": True} if leader_first else {}
    return {"type": "stop", "trainer": trainer, "grace_s": grace_s, **first}


def kill(trainer: int, reason: str) -> Message:
    """Kill a trainer's worker, which is reported as lost for this reason."""
    return {"type": "kill", "trainer": trainer, "reason": reason}


def heard(report: Report) -> Message:
    """The end of a worker has been heard: its agent need not say it again."""
    return {"type": "heard", "trainer": report.trainer, "started": report.started, "run": report.run}


def _program(spec: TrainerSpec) -> Message:
    own = {"folder": spec.folder} if spec.folder else {}
    return {"command": list(spec.command), "workdir": spec.workdir, "env": dict(spec.env), **own}
