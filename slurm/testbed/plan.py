"""The parts of a testbed, and the configuration that follows from them."""

from __future__ import annotations

import json
import secrets
import socket
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from ClusterShell.NodeSet import NodeSet, NodeSetParseError
from jinja2 import Environment, PackageLoader, StrictUndefined

from benchmarks.testbeds.errors import TestbedError

MOST_NODES = 1024
LOOPBACK = "127.0.0.1"
FRAGMENTS = Path(__file__).parent.parent
CORES, MEMORY_MB, GPUS = 4, 1000, 2
"""Resources of every node; GPUs only where they are asked for."""
URGENT, QOS = "urgent", "high"
"""A partition and a QOS whose jobs come before those of `batch`."""
HETEROGENEOUS = "bftrainer-heterogeneous.lua"
LICENCE, LICENCES = "tool", 4


@dataclass(frozen=True, slots=True)
class NodePlan:
    """A node: `port` is its slurmd's; `features` and `gres` as slurm.conf has them, "" for none."""

    name: str
    port: int
    features: str = ""
    gres: str = ""

    def gres_count(self) -> int:
        """Return how many of its GRES it has."""
        last = self.gres.rpartition(":")[2]
        return int(last) if last.isdecimal() else min(1, len(self.gres))


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A testbed.

    Attributes:
        directory: Everything of it lies there.
        nodes: n1, n2, ...
        port: slurmctld's.
        address: Where all its daemons are reached.
        slurmdbd_port: 0 without accounting.
        preemption: Whether jobs of `batch` preempt those of `backfill`.
        stock: Slurm's own scheduler parameters, instead of ones that act at once.
        shared: Whether main jobs share nodes: each has the cores and memory that it asks for.
        heterogeneous: Whether heterogeneous jobs are kept from preempting pilots, as sites are advised;
            with accounting and QOS, which then say who preempts whom.
        mixed: With a second main partition of a higher tier, licences and, with slurmdbd, a second QOS.
        parts: Whether pilots may have parts of nodes (`harvest: gpus`).
        made_users: Those that were made for it and go with it.
    """

    directory: Path
    nodes: tuple[NodePlan, ...]
    port: int
    address: str = LOOPBACK
    slurmdbd_port: int = 0
    preemption: bool = True
    stock: bool = False
    shared: bool = False
    mixed: bool = False
    heterogeneous: bool = False
    parts: bool = False
    made_users: tuple[str, ...] = ()

    @property
    def cluster(self) -> str:
        """Slurm's name for it; associations in slurmdbd carry it."""
        return "testbed"

    @property
    def partitions(self) -> tuple[str, ...]:
        """Those of main jobs."""
        return ("batch", URGENT) if self.mixed else ("batch",)

    @property
    def conf(self) -> Path:
        """The file that SLURM_CONF names."""
        return self.directory / "slurm.conf"

    @property
    def munge_socket(self) -> Path:
        """The socket of the testbed's own munged."""
        return self.directory / "munge" / "socket"

    @property
    def fragment(self) -> str:
        """The file for sites that it includes."""
        if not self.preemption:
            return "bftrainer-window.conf"
        return "bftrainer-qos.conf" if self.heterogeneous else "bftrainer-partition.conf"

    def device(self, node: NodePlan) -> str:
        """The links to /dev/null that stand for a node's devices: a path with a range."""
        return f"{self.directory}/devices/{node.name}-[0-{node.gres_count() - 1}]"

    def names(self) -> tuple[str, ...]:
        """The nodes' names."""
        return tuple(node.name for node in self.nodes)


def own_address() -> str | None:
    """The loopback address of this machine's name, where Slurm's daemons can listen on nothing else.

    None: the name leads elsewhere. Slurm then listens on all interfaces.
    """
    try:
        address = socket.gethostbyname(socket.gethostname())
    except OSError:
        return None
    return address if address.startswith("127.") else None


def node_plans(
    ports: Sequence[int], features: Mapping[str, str], gres: Mapping[str, str]
) -> tuple[NodePlan, ...]:
    """One node a port; `features` and `gres` map node sets (`n[1-4]`) to what these nodes have.

    Raises:
        TestbedError: a set is none, or names a node that is not there.
    """
    if not 0 < len(ports) <= MOST_NODES:
        raise TestbedError(f"{len(ports)} nodes: a testbed has 1 to {MOST_NODES}")
    names = [f"n{number}" for number in range(1, len(ports) + 1)]
    having = {kind: _expanded(kind, sets, names) for kind, sets in (("features", features), ("gres", gres))}
    return tuple(
        NodePlan(name, port, having["features"].get(name, ""), having["gres"].get(name, ""))
        for name, port in zip(names, ports, strict=True)
    )


def _expanded(kind: str, sets: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    found = {}
    for text, value in sets.items():
        try:
            members = list(NodeSet(text))
        except NodeSetParseError as error:
            raise TestbedError(f"{kind} of {text!r}: {error}; name nodes like n[1-4]") from None
        if unknown := sorted(set(members) - set(names)):
            raise TestbedError(f"{kind} of {text!r}: no node {unknown[0]}; there are n1 to {names[-1]}")
        found.update(dict.fromkeys(members, value))
    return found


def files(plan: Plan) -> dict[str, str]:
    """Name in the directory -> content, of every file of configuration."""
    templates = Environment(
        loader=PackageLoader("slurm.testbed", "."),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701  no HTML
    )
    gres_types = sorted({node.gres.split(":")[0] for node in plan.nodes if node.gres})
    hostname = socket.gethostname().split(".")[0]
    loopback = own_address() == plan.address
    words = {"plan": plan, "hostname": hostname, "loopback": loopback, "gres_types": gres_types}
    words |= {"cores": CORES, "memory_mb": MEMORY_MB, "urgent": URGENT}
    words |= {"licences": f"{LICENCE}:{LICENCES}"}
    found = {
        name: templates.get_template(f"{name}.j2").render(words)
        for name in (
            "slurm.conf",
            *(["gres.conf"] if gres_types else []),
            *(["slurmdbd.conf"] if plan.slurmdbd_port else []),
        )
    }
    if plan.heterogeneous:
        found |= {
            "job_submit.lua": _job_submit(plan),
            HETEROGENEOUS: (FRAGMENTS / HETEROGENEOUS).read_text("utf-8"),
        }
    fragment = (FRAGMENTS / plan.fragment).read_text("utf-8")
    if plan.parts:
        fragment = fragment.replace(" OverSubscribe=EXCLUSIVE", " OverSubscribe=NO")
    return found | {plan.fragment: fragment}


def _job_submit(plan: Plan) -> str:
    """A site's own job_submit.lua, which takes what bftrainer has for it."""
    more = f'bftrainer_twins.{QOS} = "{QOS}-het"\n' if plan.mixed else ""
    return f'dofile("{plan.directory / HETEROGENEOUS}")\n{more}return slurm.SUCCESS\n'


def lay_out(plan: Plan) -> None:
    """Make the folders, the configuration and a key for munge in the plan's directory."""
    place = plan.directory
    for name in ("run", "log", "state", "spool", "munge", "devices"):
        (place / name).mkdir()
    for node in plan.nodes:
        (place / "spool" / node.name).mkdir()
        for number in range(node.gres_count()):
            (place / "devices" / f"{node.name}-{number}").symlink_to("/dev/null")
    for name, content in files(plan).items():
        (place / name).write_text(content, "utf-8")
    if plan.slurmdbd_port:  # refuses a configuration that others can read
        (place / "slurmdbd.conf").chmod(0o600)
    key = place / "munge" / "key"
    key.touch(0o600)
    key.write_bytes(secrets.token_bytes(1024))


def with_users(plan: Plan, made: Sequence[str]) -> Plan:
    """The same plan with more users that go with it."""
    return replace(plan, made_users=(*plan.made_users, *made))


def write(plan: Plan) -> None:
    """Put the plan itself into its directory, for `read`."""
    content = {**asdict(plan), "directory": str(plan.directory)}
    (plan.directory / "testbed.json").write_text(json.dumps(content, indent=1), "utf-8")


def read(directory: Path) -> Plan:
    """The plan of the testbed in a directory.

    Raises:
        TestbedError: there is none.
    """
    try:
        content = json.loads((directory / "testbed.json").read_text("utf-8"))
        nodes = tuple(NodePlan(**node) for node in content.pop("nodes"))
        made = tuple(content.pop("made_users"))
        return Plan(**{**content, "directory": directory}, nodes=nodes, made_users=made)
    except FileNotFoundError:
        raise TestbedError(f"{directory}: no testbed there; bring one up, or name its --dir") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TestbedError(f"{directory}/testbed.json: {error}; remove the directory") from error
