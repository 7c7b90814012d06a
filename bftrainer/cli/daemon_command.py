"""bftrainer daemon"""

from __future__ import annotations

import asyncio
import faulthandler
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bftrainer.cli.options import Positive, load_settings, parse_utc, setting_options
from bftrainer.errors import BftrainerError

if TYPE_CHECKING:
    from bftrainer.model import NodesChanged


@click.command("daemon")
@click.option("--scheduler", type=click.Choice(["local"]), required=True, help="Whose idle nodes to use.")
@click.option(
    "--log",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="local: play this log of idle nodes (any format of `bftrainer trace`) instead of a generated one.",
)
@click.option(
    "--speed",
    type=Positive(most=100_000),
    default=1.0,
    show_default=True,
    help="local: seconds of the log per second.",
)
@click.option(
    "--nodes",
    type=click.IntRange(min=1, max=1024),
    default=4,
    show_default=True,
    help="local: number of nodes (slots of this machine).",
)
@click.option("--from", "start", metavar="ISO", help="local: where in the log to begin, UTC.")
@click.option("--seed", default=0, show_default=True, help="local: of the generated log.")
@setting_options(
    "state_dir",
    "allocator",
    "objective",
    "t_fwd_s",
    "max_parallel",
    "nodes_per_trainer",
    "ageing_s",
    "user_max_nodes",
    "departure_groups",
    "solver",
    "milp_time_limit_s",
    "milp_gap",
    "poll_s",
    "debounce_s",
    "orphan_s",
)
@click.option("-v", "--verbose", is_flag=True, help="Log more.")
def command(
    scheduler: str,
    log: Path | None,
    speed: float,
    nodes: int,
    seed: int,
    start: str | None,
    verbose: bool,
    config: Path | None,
    **overrides: Any,
) -> None:
    """Run the daemon until SIGTERM or Ctrl-C; every trainer then writes a checkpoint and waits for the
    next start. Killed without notice, a new daemon takes over what it left running.

    The local scheduler makes a cluster of this machine: its nodes are idle when a log says so, and at
    the end of an idle interval everything on the node is killed.
    """
    from bftrainer.daemon import Daemon, WallClock
    from bftrainer.log import configure
    from bftrainer.replay import intervals, logs, synth
    from bftrainer.schedulers.local import LocalScheduler, Playback
    from bftrainer.serve import serve
    from bftrainer.store import SqlStore
    from bftrainer.systemd import Systemd

    settings = load_settings(config, overrides)
    configure(settings.log_format, verbose=verbose)
    faulthandler.enable()  # systemd ends a daemon that is stuck by SIGABRT: its stacks are worth having
    if log is None and start is not None:
        raise click.UsageError("--from needs --log: a generated log has no dates")
    names, begin, end = synth.names(nodes), 0.0, float("inf")
    changes: Iterable[NodesChanged] = synth.changes(nodes, seed=seed)
    if log is not None:
        fragments = logs.load(log).intervals
        if not fragments:
            raise BftrainerError(f"{log}: no intervals")
        names = intervals.first_nodes(fragments, nodes)
        first = parse_utc(start)
        begin = min(f.start for f in fragments if f.node in names) if first is None else first
        changes = played = intervals.changes(fragments, names, begin, float("inf"))
        end = played[-1].time
        if begin >= end:
            raise BftrainerError(f"{log}: nothing happens to {', '.join(sorted(names))} after --from {start}")
    try:
        settings.state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise BftrainerError(f"--state-dir {settings.state_dir}: {error.strerror}; take another") from error
    store, clock = SqlStore(settings.database), WallClock()
    # the machine goes on while the daemon is down: a restart must find the log where it would be
    what = json.dumps([str(log and log.resolve()), speed, nodes, seed, begin])
    remembered = json.loads(store.get("local") or "[null, 0]")
    origin = remembered[1] if remembered[0] == what else clock.now()
    if begin + (clock.now() - origin) * speed > end:
        click.echo("the log is over: it is played from its beginning again", err=True)
        origin = clock.now()
    store.put("local", json.dumps([what, origin]))
    local = LocalScheduler(
        nodes=names,
        changes=changes,
        playback=Playback(begin=begin, origin=origin, speed=speed),
        socket=settings.socket,
        log_dir=settings.state_dir / "logs",
        orphan_s=settings.orphan_s,
        clock=clock,
    )
    if settings.solver != "highs":  # the others are not always here
        from bftrainer.allocate.solvers import require

        require(settings.solver)
    daemon = Daemon(settings, local, store, clock)
    systemd = Systemd.of(os.environ, os.getpid())
    try:
        asyncio.run(serve(daemon, lambda: load_settings(config, overrides), systemd))
    finally:
        store.close()
