"""The loads of `loop.py` on the daemon: each condition prepares its store, then attacks it."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import growth
import sqlalchemy as sa

from bftrainer.store import tables as t
from tests.support.hostile.attacks import attacking
from tests.support.hostile.daemon import EVERYONE
from tests.support.hostile.world import GOOD, NODES, World
from tests.support.site import SCRIPTS

LOCKED_S = 40.0
DISK_MB = 400
MORE_NODES = (*NODES, "n4")
OTHER = 1
"""The uid of a user who means no harm."""
READERS = (0, 1, 2, 3, 4, 5, 6, 7, 8, 10)
"""The uids of those who read the feed, ten streams each; the first is an admin."""
SUBMITTED = "submitted.jsonl"
LARGE = {"min": len(NODES) + 9, "max": len(NODES) + 99}
"""Nodes of trainers that wait: what runs on nodes of this machine would take its cores from the daemon."""
CURVE = [[LARGE["min"], 1.0], [LARGE["max"], 3.0]]
FAIR_SPEC = {"name": "NAME", "command": ["true"], "nodes": LARGE}
FAIR_STUDY = {
    "name": "NAME",
    "trainer": {"command": ["true", "{p}"], "nodes": LARGE},
    "space": {"p": {"float": [0.0, 1.0]}},
    "metric": "m",
    "trials": 4,
    "budget": 10,
}
PROGRESS = {
    "type": "progress",
    "generation": 10**9,
    "step": 1,
    "samples": 16,
    "epoch": 0,
    "size": 1,
    "rate": 1.0,
    "problem": "",
}


@dataclass(frozen=True, slots=True)
class Options:
    """The options of the command line, see `loop.py`."""

    seconds: float
    trainers: int
    events: int
    filled: Path | None
    slowest: int


Does = Callable[[World, Options], contextlib.AbstractContextManager[None]]


@contextlib.contextmanager
def nothing(world: World, options: Options) -> Iterator[None]:
    """Nothing."""
    yield


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """`prepared` runs before the daemon is started and is undone after it; `attack` while it is measured."""

    says: str
    attack: Does = nothing
    prepared: Does = nothing
    nodes: tuple[str, ...] = NODES
    settings: Mapping[str, object] = field(default_factory=dict)
    root: bool = False


# the store


@contextlib.contextmanager
def locked(world: World, options: Options) -> Iterator[None]:
    """Another process keeps the database locked."""
    seconds = min(LOCKED_S, 0.8 * options.seconds)
    with attacking("lock", database=world.state / "bftrainer.db", seconds=seconds):
        yield


@contextlib.contextmanager
def slow(world: World, options: Options) -> Iterator[None]:
    """Writes wait for up to 0.8 s."""
    with attacking("bursts", database=world.state / "bftrainer.db", locked_s=0.8, free_s=0.1):
        yield


@contextlib.contextmanager
def small_disk(world: World, options: Options) -> Iterator[None]:
    """The state directory is a file system of its own."""
    world.state.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m,mode=700", "none", str(world.state)]
    subprocess.run(mount, check=True)
    try:
        yield
    finally:
        world.close()
        unmount = ["umount", "--lazy", str(world.state)]
        subprocess.run(unmount, check=True)


@contextlib.contextmanager
def full(world: World, options: Options) -> Iterator[None]:
    """Nothing more fits on the disk."""
    ballast = world.state / "ballast"
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"\0" * 4096)
    yield
    ballast.unlink()


# users


@contextlib.contextmanager
def specs(world: World, options: Options) -> Iterator[None]:
    """Long specs that are wrong."""
    with attacking("specs", at=world.socket, size=250_000, at_once=12):
        yield


@contextlib.contextmanager
def asked(world: World, options: Options) -> Iterator[None]:
    """status and metrics, 20 times a second each."""
    paths = ["/v1/status", "/metrics"]
    with attacking("asking", at=world.socket, paths=paths, per_s=20):
        yield


@contextlib.contextmanager
def many_trainers(world: World, options: Options) -> Iterator[None]:
    """Many trainers wait; the nodes are theirs, too."""
    world.state.mkdir(exist_ok=True)
    _fill(world, options.trainers, 0, None)
    yield


@contextlib.contextmanager
def many_events(world: World, options: Options) -> Iterator[None]:
    """Many events are stored, and a thousand trainers that have ended."""
    world.state.mkdir(exist_ok=True)
    _fill(world, 0, options.events, options.filled)
    yield


def _fill(world: World, trainers: int, events: int, kept: Path | None) -> None:
    """Fill the store; trainers that wait run `steady.py`, and the first is the one that behaves."""
    database = world.state / "bftrainer.db"
    if kept is not None and kept.exists():
        shutil.copyfile(kept, database)
        return
    growth.fill(database, 1000, trainers, events, days=20.0)
    with sa.create_engine(f"sqlite:///{database}").begin() as c:
        unfinished = sa.select(t.trainers.c.id, t.trainers.c.spec).where(t.trainers.c.ended_at.is_(None))
        for place, (id_, spec) in enumerate(c.execute(unfinished.order_by(t.trainers.c.id)).all()):
            own = {**spec, "command": ["python", str(SCRIPTS / "steady.py")], "workdir": "/", "samples": None}
            row: dict[str, Any] = {"spec": {**own, "name": GOOD} if place == 0 else own}
            row |= {"name": GOOD} if place == 0 else {}
            c.execute(t.trainers.update().where(t.trainers.c.id == id_).values(**row))
    if kept is not None:
        shutil.copyfile(database, kept)


@contextlib.contextmanager
def for_everyone(world: World, options: Options) -> Iterator[None]:
    """The daemon serves all users of the machine."""
    (world.root / EVERYONE).touch()
    yield


@contextlib.contextmanager
def doors(world: World, options: Options) -> Iterator[None]:
    """One user at every door of the API, and another one who submits now and then."""
    (world.root / SUBMITTED).touch()
    (world.root / SUBMITTED).chmod(0o666)
    fair = {"spec": json.dumps(FAIR_SPEC), "study": json.dumps(FAIR_STUDY), "into": world.root / SUBMITTED}
    with (
        attacking("every_door", by_stranger=True, at=world.socket, studies=heavy_studies(), spec=long_spec()),
        attacking("submitting", by_stranger=True, uid=OTHER, at=world.socket, every_s=0.7, **fair),
    ):
        yield


@contextlib.contextmanager
def readers(world: World, options: Options) -> Iterator[None]:
    """100 readers of the feed, 20 of them stuck: an admin's, who are told of all, and other users'."""
    with contextlib.ExitStack() as stack:
        for uid in READERS:
            each = {"readers": 100 // len(READERS), "stuck": 20 // len(READERS)}
            stack.enter_context(attacking("feed_readers", by_stranger=True, uid=uid, at=world.socket, **each))
        yield


@contextlib.contextmanager
def many_for_everyone(world: World, options: Options) -> Iterator[None]:
    """Many trainers wait, and the daemon serves all users."""
    with many_trainers(world, options), for_everyone(world, options):
        yield


def heavy_studies() -> list[str]:
    """Studies that cost as much as a daemon takes, and such that would cost more."""
    one = {"choice": [0]}
    grid = {name: {"choice": list(range(256))} for name in "ab"} | {f"p{n}": one for n in range(96)}
    numbers = {f"p{n}": {"float": [0.0, 1.0]} for n in range(100)}
    usual: dict[str, Any] = {"metric": "m", "trials": 5_000, "budget": 10**15, "parallelism": 256}
    usual |= {"trainer": {"command": ["true", "{params}"], "nodes": LARGE, "curve": CURVE}}
    amplified = {"trainer": {"command": ["true", "{params}" * 1900], "nodes": LARGE}}
    kinds: list[dict[str, Any]] = [
        {"space": grid, "sampler": "grid"},
        {"space": numbers, "sampler": "tpe"},
        {"space": numbers, "sampler": "cmaes", "stopping": {"median": {}}},
        {"space": numbers, "stopping": {"asha": {"least": 1, "eta": 2}}, "deadline": "1h"},
        {"space": numbers, "stopping": {"hyperband": {"least": 1, "eta": 2}}, "deadline": "1h"},
        {"space": {"p": {"int": [0, 10**12]}}, "sampler": "grid"},
        {"space": {"p": {"float": [0.0, 1.0], "step": 1e-12}}, "sampler": "grid"},
        {"space": {"p": {"choice": ["x" * 10_000]}}, **amplified},
        {"space": {"p": {"float": [0.0, 1.0]}}, "storage": "sqlite:////" + "0/../" * 190 + "x.db"},
    ]
    # trials without a trainer of their own beyond what a user may have wait
    return [
        json.dumps(
            {"name": f"heavy{round_}-{number}", **usual, **kind, **({} if round_ else {"trials": 256})}
        )
        for round_ in range(2)
        for number, kind in enumerate(kinds)
    ]


def long_spec() -> str:
    """A spec that has all that a spec may have."""
    env = {f"KEY{n}": "x" * 20 for n in range(700)}
    own = {"name": "long", "command": ["true"], "nodes": LARGE, "env": env}
    return json.dumps({**own, "curve": [[n, n] for n in range(*LARGE.values())]})


# strangers and agents


@contextlib.contextmanager
def connections(world: World, options: Options) -> Iterator[None]:
    """1,000 idle connections, and 200 that never end their headers."""
    with attacking("connections", by_stranger=True, at=world.socket, idle=1000, half_open=200):
        yield


@contextlib.contextmanager
def hellos(world: World, options: Options) -> Iterator[None]:
    """Clients without a secret that say long hellos, one after the other."""
    with attacking("hellos", by_stranger=True, at=world.agents_at, size=15_000_000, at_once=10):
        yield


@contextlib.contextmanager
def pings(world: World, options: Options) -> Iterator[None]:
    """Clients without a secret that send nothing but pings."""
    with attacking("pings", by_stranger=True, at=world.agents_at, at_once=20):
        yield


@contextlib.contextmanager
def script_flood(world: World, options: Options) -> Iterator[None]:
    """A script says to its agent whatever it likes, as fast as it can."""
    report = json.dumps({**PROGRESS, "metrics": {"loss#": 0.1}}).replace('"step": 1', '"step": #')
    joined = '{"type": "joined", "generation": 1, "step": 1, "size": 1, "survivor": true, "pause_s": 0.1}'
    messages = ['{"type": "ready", "generation": 0}', report, joined]
    world.submit("flood", str(SCRIPTS / "flood.py"), str(world.root), *messages, n_max=1, weight=4)
    world.until((world.root / "flooding").exists, 60, "the script floods")
    yield


@contextlib.contextmanager
def agent_flood(world: World, options: Options) -> Iterator[None]:
    """A process with a pilot's secret says to the daemon whatever it likes, as fast as it can."""
    if not (others := _others(world)):
        world.other("theirs")
        others = _others(world)
    found = world.trainer(others[0])
    node = found["members"][0]
    tag, secret = world.secret(node)
    joined = {"type": "joined", "generation": 9, "step": 1, "size": 1, "survivor": True, "pause_s": 0.1}
    messages = [
        {"type": "worker", "trainer": found["id"], "started": started, "run": 0, "said": said}
        for started in range(1, 10)  # one of these is right
        for said in ({**PROGRESS, "metrics": {f"loss{n}": 0.1 for n in range(100)}}, joined)
    ]
    with attacking("agent_flood", at=world.agents_at, node=node, tag=tag, secret=secret, messages=messages):
        yield


def _others(world: World) -> list[str]:
    """The names of trainers that run beside the one that behaves."""
    running = world.get("status")["running"]
    return [trainer["name"] for trainer in running if trainer["name"] != GOOD and trainer["members"]]


# all of it


@contextlib.contextmanager
def all_prepared(world: World, options: Options) -> Iterator[None]:
    """A store with trainers and events."""
    world.state.mkdir(exist_ok=True)
    kept = options.filled and options.filled.with_suffix(".all.db")
    _fill(world, options.trainers, options.events, kept)
    yield


@contextlib.contextmanager
def everything(world: World, options: Options) -> Iterator[None]:
    """All attacks at once, but the full disk."""
    with contextlib.ExitStack() as stack:
        for attack in (agent_flood, locked, specs, asked, hellos, pings, connections):
            stack.enter_context(attack(world, options))
        yield


CONDITIONS: dict[str, Condition] = {
    "calm": Condition(says="nothing but main jobs"),
    "calm-again": Condition(says="the same once more: what differs is noise"),
    "locked": Condition(says=f"another process locks the database for {LOCKED_S:g} s", attack=locked),
    "slow": Condition(says="another process locks the database for 0.8 s again and again", attack=slow),
    "full": Condition(says="the disk is full", attack=full, prepared=small_disk, root=True),
    "specs": Condition(says="12 specs of 250 kB at a time, all wrong", attack=specs),
    "idle": Condition(says="1,000 idle and 200 half-open connections", attack=connections),
    "hellos": Condition(says="10 clients without a secret, each of which says 15 MB", attack=hellos),
    "pings": Condition(says="20 clients without a secret that send nothing but pings", attack=pings),
    "script": Condition(says="a script floods its agent", attack=script_flood, nodes=MORE_NODES),
    "agent": Condition(says="an agent floods the daemon", attack=agent_flood, nodes=MORE_NODES),
    "trainers": Condition(
        says="10,000 trainers wait, and the same is asked as in `asked`", prepared=many_trainers, attack=asked
    ),
    "events": Condition(
        says="1,000,000 events are stored, and the same is asked", prepared=many_events, attack=asked
    ),
    "asked": Condition(says="status and metrics are asked 20 times a second each", attack=asked),
    "doors": Condition(
        says="a user at every door of the API at once, beside another one who submits",
        prepared=for_everyone,
        attack=doors,
        root=True,
    ),
    "readers": Condition(
        says="100 readers of the feed, 20 of them stuck, while 10,000 trainers wait",
        prepared=many_for_everyone,
        attack=readers,
        root=True,
    ),
    "all": Condition(says="all of these at once", attack=everything, prepared=all_prepared, nodes=MORE_NODES),
}
"""By name; `--list` prints what they say."""
