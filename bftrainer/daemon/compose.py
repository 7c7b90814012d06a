"""The scheduler that the settings name, and where its agents find the daemon."""

from __future__ import annotations

import json
import re
import secrets
import shlex
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bftrainer.errors import BftrainerError
from bftrainer.settings.values import Settings

if TYPE_CHECKING:
    from bftrainer.model.events import NodesChanged
    from bftrainer.ports import Clock, Store
    from bftrainer.schedulers.local.scheduler import LocalScheduler
    from bftrainer.schedulers.slurm.pilot import PilotJob
    from bftrainer.schedulers.slurm.scheduler import SlurmScheduler


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """What the local scheduler plays; `path` None: a generated one. `begin`: log time, Unix seconds."""

    path: Path | None
    nodes: int
    speed: float
    seed: int
    begin: float | None


def local_scheduler(settings: Settings, log: Log, store: Store, clock: Clock) -> LocalScheduler:
    """This machine as a cluster. The machine goes on while the daemon is down: a restart finds the log
    where it would be.

    Raises:
        BftrainerError: nothing happens in the log.
    """
    from bftrainer.schedulers.local.scheduler import LocalScheduler, Playback
    from bftrainer.traces import intervals, logs
    from bftrainer.traces.synthetic import onoff

    names, begin, end = onoff.names(log.nodes), 0.0, float("inf")
    changes: Iterable[NodesChanged] = onoff.changes(log.nodes, seed=log.seed)
    if log.path is not None:
        fragments = logs.load(log.path).intervals
        if not fragments:
            raise BftrainerError(f"{log.path}: no intervals")
        names = intervals.first_nodes(fragments, log.nodes)
        begin = min(f.start for f in fragments if f.node in names) if log.begin is None else log.begin
        changes = played = intervals.changes(fragments, names, begin, float("inf"))
        end = played[-1].time
        if begin >= end:
            raise BftrainerError(f"{log.path}: nothing happens to {', '.join(sorted(names))} after --from")
    what = json.dumps([str(log.path and log.path.resolve()), log.speed, log.nodes, log.seed, begin])
    remembered = json.loads(store.get("local") or "[null, 0]")
    origin = remembered[1] if remembered[0] == what else clock.now()
    if begin + (clock.now() - origin) * log.speed > end:
        click.echo("the log is over: it is played from its beginning again", err=True)
        origin = clock.now()
    if [what, origin] != remembered:
        store.put("local", json.dumps([what, origin]))
    return LocalScheduler(
        nodes=names,
        changes=changes,
        playback=Playback(begin=begin, origin=origin, speed=log.speed),
        socket=settings.socket,
        log_dir=settings.state_dir / "logs",
        orphan_s=settings.orphan_s,
        clock=clock,
    )


def slurm_scheduler(settings: Settings, agents_at: str, clock: Clock, *, make: bool) -> SlurmScheduler:
    """Slurm as the settings have it; `agents_at` is where agents find the daemon. `make`: this is the daemon,
    and what is missing in its state directory is made."""
    from bftrainer.schedulers.slurm.scheduler import SlurmScheduler

    if make:
        (settings.state_dir / "logs").mkdir(exist_ok=True)
    return SlurmScheduler(
        _pilot_job(settings, agents_at, instance(settings, make=make)),
        watch=frozenset(name for name in settings.slurm_watch.split(",") if name),
        command_timeout_s=settings.command_timeout_s,
        claim_patience_s=settings.claim_patience_s,
        clock=clock,
    )


def _pilot_job(settings: Settings, agents_at: str, instance: str) -> PilotJob:
    """What the settings say of pilots on Slurm."""
    from bftrainer.schedulers.shared import templates
    from bftrainer.schedulers.slurm.pilot import PilotJob

    return PilotJob(
        instance=instance,
        template=Path(settings.pilot_template or templates.find("slurm-pilot.sh.j2")),
        python=settings.pilot_python,
        daemon=agents_at,
        orphan_s=settings.orphan_s,
        log_dir=settings.state_dir / "logs",
        window=settings.slurm_mode == "window",
        partition=settings.slurm_partition,
        qos=settings.slurm_qos,
        account=settings.slurm_account,
        options=tuple(shlex.split(settings.slurm_options)),
        max_s=settings.pilot_limit_s,
        exec_prefix=settings.exec_prefix,
    )


def instance(settings: Settings, *, make: bool) -> str:
    """The word in our pilots' names that tells them from those of other daemons. The daemon makes it once;
    others are told INSTANCE where there is none or only the daemon can read it.

    Raises:
        BftrainerError: it is there, and cannot be read.
    """
    path = settings.state_dir / "instance"
    try:
        if re.fullmatch(r"[0-9a-f]{8}", found := path.read_text(encoding="ascii").strip()):
            return found  # and not what a full disk has left of it
    except FileNotFoundError:
        pass
    except PermissionError as error:
        if make:
            raise BftrainerError(f"{path}: {error.strerror}; it is another user's daemon's") from error
    if not make:
        return "INSTANCE"
    made = secrets.token_hex(4)
    path.write_text(made, encoding="ascii")
    return made


def place_for_agents(settings: Settings) -> tuple[str, str]:
    """Where agents are told to find the daemon, as far as the settings say: host and port; PORT where it is
    any."""
    named, _, port = settings.listen.rpartition(":")
    host = settings.address if named in {"", "0.0.0.0", "[::]"} else named  # noqa: S104  no place to call
    return host, port if int(port or 0) else "PORT"


def bind_for_agents(settings: Settings, store: Store) -> tuple[socket.socket, str]:
    """The socket where agents connect and its host:port, the same after a restart: they come back there.
    Whatever it is called, a loopback address is named as one."""
    from bftrainer.api.listen import bind

    if settings.listen:
        bound = bind(settings.listen)
    else:
        try:
            bound = bind(f"{settings.address}:{store.get('port') or 0}")
        except BftrainerError:  # somebody else has it now: agents out there end by themselves
            bound = bind(f"{settings.address}:0")
    at, port = bound.getsockname()[:2]
    if str(port) != store.get("port"):  # to start does not need a disk with room on it
        store.put("port", str(port))
    return bound, f"{at if at.startswith('127.') else place_for_agents(settings)[0]}:{port}"
