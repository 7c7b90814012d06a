"""Accounting of a testbed: slurmdbd on a MariaDB of its own, which listens on a socket in the directory."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.testbeds.errors import TestbedError
from slurm.testbed.plan import FRAGMENTS, QOS

DATABASE, SLURMDBD = "mariadbd", "slurmdbd"
PROGRAMS = (DATABASE, "mariadb-install-db", SLURMDBD, "sacctmgr")
INSTALL_S = 120


def socket(directory: Path) -> Path:
    """Return the database's socket."""
    return directory / "db.sock"


def install(directory: Path) -> None:
    """Make an empty database.

    Raises:
        TestbedError: MariaDB says no.
    """
    command = ["mariadb-install-db", "--no-defaults", f"--datadir={directory}/db", "--user=root"]
    command += ["--auth-root-authentication-method=socket", "--skip-test-db"]
    env = {**os.environ, "TMPDIR": str(directory)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=INSTALL_S, env=env)
    if done.returncode:
        raise TestbedError(f"mariadb-install-db: {(done.stderr or done.stdout).strip()[-1000:]}")


def database_options(directory: Path) -> tuple[str, ...]:
    """Return mariadbd's options: root alone gets in, by socket peer; data need not survive power loss."""
    return (
        *("--no-defaults", "--user=root", "--skip-networking", f"--datadir={directory}/db"),
        *(f"--socket={socket(directory)}", f"--pid-file={directory}/run/mariadbd.own-pid"),
        f"--tmpdir={directory}",  # when it starts it removes what others keep in theirs
        "--innodb-flush-log-at-trx-commit=0",
    )


def environment(directory: Path, env: Mapping[str, str]) -> dict[str, str]:
    """Return slurmdbd's environment: its configuration cannot name a database's socket."""
    return {**env, "MYSQL_UNIX_PORT": str(socket(directory))}


def cluster(name: str) -> tuple[str, ...]:
    """The command that makes a cluster known before its slurmctld does."""
    return ("sacctmgr", "-i", "add", "cluster", name)


def associations(cluster: str, users: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Commands that let users submit: to the account `main`, and as bftrainer's pilots."""
    change = ("sacctmgr", "-i")
    return (
        (*change, "add", "account", "main", f"cluster={cluster}"),
        *((*change, "add", "user", user, "account=main", f"cluster={cluster}") for user in users),
    )


def qos(nodes: int, users: Sequence[str]) -> tuple[str, ...]:
    """Return the commands that a site runs for bftrainer."""
    return (str(FRAGMENTS / "bftrainer-qos.sh"), str(nodes), *users)


def heterogeneous(*, mixed: bool) -> tuple[str, ...]:
    """Return the commands that a site runs so that heterogeneous jobs do not preempt pilots."""
    return (str(FRAGMENTS / "bftrainer-heterogeneous.sh"), "normal", *((QOS,) if mixed else ()))


def higher(users: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Commands that make a QOS whose jobs come first, and let users choose it."""
    change = ("sacctmgr", "-i")
    return (
        (*change, "add", "qos", QOS, "priority=100"),
        *((*change, "modify", "user", "where", f"name={user}", "set", f"qos+={QOS}") for user in users),
    )
