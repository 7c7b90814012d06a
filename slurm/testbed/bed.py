"""A whole Slurm on one machine: munged, slurmctld and many slurmd, from nothing and on loopback."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from benchmarks.testbeds.errors import TestbedError
from benchmarks.testbeds.waiting import until
from bftrainer.state_dir.path_safety import danger
from slurm.testbed import accounting, processes, users
from slurm.testbed import plan as plans
from slurm.testbed.plan import Plan
from slurm.testbed.ports import free_ports

START_S = 120.0
PER_NODE_S = 0.25
"""Seconds that a start may take on a busy machine: START_S, and this for each node."""
STOP_S = 30.0
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "sinfo", "scontrol")
SBIN = "/usr/sbin:/usr/local/sbin"
CONTROLLER, MUNGED = "slurmctld", "munged"


def why_not(*, slurmdbd: bool = False) -> str | None:
    """Return what this machine or its user lacks for a testbed; None: nothing."""
    if os.geteuid() != 0:
        return "a Slurm testbed needs root: its slurmd starts jobs of several users"
    missing = [name for name in PROGRAMS if _program(name) is None]
    if missing:
        return f"{', '.join(missing)} not installed: say make slurm"
    if slurmdbd and (missing := [name for name in accounting.PROGRAMS if _program(name) is None]):
        return f"{', '.join(missing)} not installed: Debian's packages are slurmdbd and mariadb-server-core"
    return None


def _program(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:{SBIN}")


class Testbed:
    """A running testbed; as a context it is brought up and taken down.

    Attributes:
        plan: Its parts.
        env: The environment in which Slurm's commands reach it.
    """

    __test__ = False  # its name is no test's

    def __init__(
        self,
        nodes: int = 16,
        *,
        directory: Path | None = None,
        preemption: bool = True,
        stock: bool = False,
        shared: bool = False,
        mixed: bool = False,
        heterogeneous: bool = False,
        parts: bool = False,
        slurmdbd: bool = False,
        users: Sequence[str] = (),
        features: Mapping[str, str] | None = None,
        gres: Mapping[str, str] | None = None,
    ) -> None:
        """Nothing happens before `up`. `directory` is made; None: a new temporary one.

        `features` and `gres` map node sets to what these nodes have: {"n[1-2]": "gpu:2"}. The others are
        those of `Plan`.
        """
        self._wanted = (nodes, directory, tuple(users), features or {}, gres or {})
        self._preemption, self._stock, self._heterogeneous = preemption, stock, preemption and heterogeneous
        self._parts = parts
        self._shared, self._mixed, self._slurmdbd = shared, mixed, slurmdbd or self._heterogeneous

    @classmethod
    def at(cls, directory: Path) -> Testbed:
        """The testbed that we, or root, brought up in a directory.

        Its files say which processes to end, and Slurm's commands load the plugins that its slurm.conf names.

        Raises:
            TestbedError: there is none, or another user could have put it there.
        """
        if directory.is_dir() and (
            found := danger(directory / "testbed.json", os.geteuid(), strict=True, instead="/srv/testbed")
        ):
            raise TestbedError(f"{directory}: {found.said}; {found.remedy}")
        bed = cls()
        bed._adopt(plans.read(directory.resolve()))
        return bed

    def _adopt(self, plan: Plan) -> None:
        self.plan = plan
        self.env = {key: value for key, value in os.environ.items() if not key.startswith("SLURM")}
        self.env |= {"SLURM_CONF": str(plan.conf), "BFTRAINER_MUNGE_SOCKET": str(plan.munge_socket)}
        self._ledger = processes.Ledger(plan.directory)

    def __enter__(self) -> Testbed:
        self.up()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.down()

    def up(self) -> None:
        """Bring it up; returns when every node is idle.

        Raises:
            TestbedError: something is missing, the directory is in use, or Slurm does not start: its
                logs are quoted, and nothing stays behind.
        """
        if why := why_not(slurmdbd=self._slurmdbd):
            raise TestbedError(why)
        count, wanted, names, features, gres = self._wanted
        directory = _directory(wanted)
        with free_ports(count + 2) as (port, dbd_port, *rest):
            try:
                nodes = plans.node_plans(rest, features, gres)
                self._adopt(
                    Plan(
                        directory=directory,
                        nodes=nodes,
                        port=port,
                        address=plans.own_address() or plans.LOOPBACK,
                        slurmdbd_port=dbd_port if self._slurmdbd else 0,
                        preemption=self._preemption,
                        stock=self._stock,
                        shared=self._shared,
                        mixed=self._mixed,
                        heterogeneous=self._heterogeneous,
                        parts=self._parts,
                    )
                )
                plans.write(self.plan)
                plans.lay_out(self.plan)
                self._make_users(names)
                self._start(names)
            except BaseException:
                self._clear(directory)
                raise

    def down(self, *, keep: bool = False) -> None:
        """Stop every process and job of it, and remove its directory unless it is to be kept."""
        ledger, plan = self._ledger, self.plan
        ledger.stop(plan.names(), 0)  # first, so that none of them starts another job
        while jobs := processes.of_jobs(plan.directory, plan.conf):
            processes.kill(jobs)
        ledger.stop([CONTROLLER], STOP_S if keep else 0)
        ledger.stop([accounting.SLURMDBD, accounting.DATABASE], STOP_S if keep else 0)
        ledger.stop([MUNGED], STOP_S)
        if left := ledger.names():
            raise TestbedError(f"{plan.directory}: {', '.join(left)} cannot be stopped")
        users.remove(plan.made_users)
        if not keep:
            shutil.rmtree(plan.directory)

    def _clear(self, directory: Path) -> None:
        if hasattr(self, "plan"):
            self.down()
        else:
            shutil.rmtree(directory)

    def _make_users(self, names: Sequence[str]) -> None:
        for name in names:
            self.plan = plans.with_users(self.plan, users.make([name]))
            plans.write(self.plan)

    @contextlib.contextmanager
    def with_users(self, names: Sequence[str]) -> Iterator[None]:
        """Unix users for a while; those that had to be made go in the end, with their homes."""
        made = users.make(names)
        try:
            self._associate(names)
            yield
        finally:
            users.remove(made)

    def _start(self, names: Sequence[str]) -> None:
        self._start_munged()
        if self.plan.slurmdbd_port:
            self._start_accounting()
            self.run(accounting.cluster(self.plan.cluster))
            self._associate(
                ["root", *names]
            )  # first: slurmctld ends where AllowQos names a QOS that is not there
        self.start_controller()
        for node in self.plan.names():
            self.start_slurmd(node)
        self.wait_idle()

    def _start_munged(self) -> None:
        place = self.plan.directory / "munge"
        self._launch(
            MUNGED,
            *("--foreground", f"--key-file={place}/key", f"--socket={place}/socket"),
            *(f"--pid-file={place}/pid", f"--log-file={place}/log", f"--seed-file={place}/seed"),
        )
        self._until(self.plan.munge_socket.is_socket, START_S, "munged listens", MUNGED)

    def _start_accounting(self) -> None:
        place = self.plan.directory
        accounting.install(place)
        self._launch(accounting.DATABASE, *accounting.database_options(place))
        self._until(accounting.socket(place).is_socket, START_S, "MariaDB listens", accounting.DATABASE)
        slurmdbd = accounting.environment(place, self.env)
        self._launch(accounting.SLURMDBD, "-D", env=slurmdbd)

        def answers() -> bool:
            """Return whether slurmdbd answers."""
            return not self.run(["sacctmgr", "-n", "show", "cluster"], check=False).returncode

        self._until(answers, START_S, "slurmdbd answers", accounting.SLURMDBD)

    def _associate(self, names: Sequence[str]) -> None:
        """Let users submit where slurmdbd asks for it."""
        if self.plan.slurmdbd_port:
            for command in accounting.associations(self.plan.cluster, names):
                self.run(command, check=False)  # the account may be there already: that is no success
            self.run(accounting.qos(len(self.plan.nodes), names))
            for command in accounting.higher(names) if self.plan.mixed else ():
                self.run(command, check=False)
            if self.plan.heterogeneous:
                self.run(accounting.heterogeneous(mixed=self.plan.mixed))

    def _launch(
        self, name: str, *options: str, program: str | None = None, env: Mapping[str, str] | None = None
    ) -> None:
        path = _program(program or name)
        if path is None:
            raise TestbedError(f"{program or name} is not installed: say make slurm")
        self._ledger.start(name, [path, *options], env or self.env)

    def start_controller(self) -> None:
        """Start slurmctld; returns when it answers."""
        self._launch(CONTROLLER, "-D", "-f", str(self.plan.conf))
        self._until(self.answers, START_S, "slurmctld answers", CONTROLLER)

    def stop_controller(self) -> None:
        """Stop slurmctld, which saves its state before."""
        self._ledger.stop([CONTROLLER], STOP_S)

    def pause_controller(self) -> None:
        """SIGSTOP: calls to slurmctld then time out."""
        self._ledger.signal(CONTROLLER, signal.SIGSTOP)

    def continue_controller(self) -> None:
        """The end of a pause; returns when slurmctld answers."""
        self._ledger.signal(CONTROLLER, signal.SIGCONT)
        self._until(self.answers, START_S, "slurmctld answers", CONTROLLER)

    def start_slurmd(self, node: str) -> None:
        """Start a node's slurmd; returns at once."""
        self._check(node)
        self._launch(node, "-D", "-N", node, "-f", str(self.plan.conf), program="slurmd")

    def kill_slurmd(self, node: str) -> None:
        """SIGKILL for a node's slurmd; its jobs go on."""
        self._check(node)
        self._ledger.stop([node], 0)

    def set_node(self, node: str, state: str, reason: str = "testbed") -> None:
        """`down`, `drain`, `resume`, ... as `scontrol update` has them."""
        self._check(node)
        self.run(["scontrol", "update", f"NodeName={node}", f"State={state}", f"Reason={reason}"])

    def _check(self, node: str) -> None:
        if node not in self.plan.names():
            raise TestbedError(f"no node {node!r}; there are n1 to n{len(self.plan.nodes)}")

    def run(
        self, command: Sequence[str], *, user: str | None = None, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on the testbed's Slurm, as root or another user (then in that user's home).

        `options` are `subprocess.run`'s; without others, text is captured and failure is an error.

        Raises:
            TestbedError: it fails; what it said is quoted.
        """
        defaults = {"capture_output": True, "text": True, "timeout": 60, "env": self.env}
        given = {**defaults, **(users.identity(user, self.env) if user else {}), **options}
        check = given.pop("check", True)
        try:
            return subprocess.run(list(command), check=check, **given)
        except subprocess.CalledProcessError as error:
            said = (error.stderr or error.stdout or "").strip()
            raise TestbedError(f"{' '.join(command)}: exit {error.returncode}: {said}") from error

    def answers(self, within_s: float = 1.0) -> bool:
        """Return whether slurmctld does, in time."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return "is UP" in self.run(["scontrol", "ping"], check=False, timeout=within_s).stdout
        return False

    def states(self) -> dict[str, str]:
        """Node -> state, as sinfo shows it (`idle`, `alloc`, `down*`, ...)."""
        rows = self.run(["sinfo", "-h", "-N", "-p", "batch", "-o", "%N %t"]).stdout.splitlines()
        return dict(row.split() for row in rows)

    def wait_idle(self, timeout_s: float | None = None) -> None:
        """Wait until every node is idle.

        Raises:
            TestbedError: some are not in time, or slurmctld ended.
        """
        limit = START_S + PER_NODE_S * len(self.plan.nodes) if timeout_s is None else timeout_s
        self._until(lambda: set(self.states().values()) == {"idle"}, limit, "every node is idle", CONTROLLER)

    def status(self) -> dict[str, bool]:
        """Process -> whether it is alive."""
        return {name: self._ledger.alive(name) for name in (*self._services(), *self.plan.names())}

    def _services(self) -> tuple[str, ...]:
        database = (accounting.DATABASE, accounting.SLURMDBD) if self.plan.slurmdbd_port else ()
        return (MUNGED, *database, CONTROLLER)

    def _until(self, ready: Any, timeout_s: float, what: str, process: str) -> None:
        if not until(lambda: ready() or not self._ledger.alive(process), timeout_s):
            raise TestbedError(f"not within {timeout_s:.0f} s: {what}\n{self._said(process)}")
        if not self._ledger.alive(process):
            raise TestbedError(f"{process} ended before this came true: {what}\n{self._said(process)}")

    def _said(self, process: str) -> str:
        lines: list[str] = []
        for name in (f"{process}.out", f"{process}.log"):
            with contextlib.suppress(OSError):
                lines += (self.plan.directory / "log" / name).read_text("utf-8", "replace").splitlines()[-15:]
        return "\n".join(lines)


def _directory(wanted: Path | None) -> Path:
    if wanted is None:
        made = Path(tempfile.mkdtemp(prefix="bftrainer-slurm-"))
        made.chmod(0o755)  # every user talks to its munged
        return made
    try:
        wanted.mkdir(mode=0o755, parents=True)
    except FileExistsError:
        raise TestbedError(
            f"{wanted}: is there already; take it down if it is a testbed, or name another --dir"
        ) from None
    return wanted.resolve()
