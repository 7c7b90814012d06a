"""One typed, frozen Settings object: command line > environment > file > default."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from bftrainer.errors import BftrainerError
from bftrainer.model.policy import EngineSettings

PREFIX = "BFTRAINER_"
SITE_VARIABLE = "BFTRAINER_SITE_CONFIG"
NO_SETTINGS = frozenset({"BFTRAINER_WORKER", "BFTRAINER_SECRET", SITE_VARIABLE})
"""Variables with our prefix that are no settings: what an agent is told, what it tells its workers, and
where the site's file is if not in its usual place."""

SOCKET = "daemon.sock"
"""What the socket is called where it is in the state directory."""
SITE_FILE = "/etc/bftrainer/config.yaml"

Seconds = Annotated[float, Field(ge=0, le=1e7, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, le=1e7, allow_inf_nan=False)]


NO_VALUE: Mapping[str, str] = {
    "t_fwd_s": "auto",
    "max_parallel": "auto",
    "nodes_per_trainer": "none",
    "ageing_s": "never",
    "user_max_nodes": "none",
    "metrics_port": "none",
    "server": "none",
    "pilot_max_s": "auto",
}
"""The words for None, where a setting may be left open."""

PILOT_MAX_S: Mapping[str, float] = {"preempt": 86_400.0, "window": 900.0}
"""What `pilot_max_s` is if left open, by `slurm_mode`: without preemption nothing else bounds for how long a
main job waits if the daemon is gone."""


class SettingsError(BftrainerError, ValueError):
    """A setting that does not exist or cannot be. The message says where it came from."""


def nodeset(text: str) -> list[str]:
    """The node names of a range such as `n[01-08],gpu3`.

    Raises:
        ValueError: it cannot be read.
    """
    from ClusterShell.NodeSet import NodeSet, NodeSetException  # noqa: PLC0415  slow to import

    try:
        return list(NodeSet(text))
    except NodeSetException as error:
        raise ValueError(f"{text!r} is no set of nodes such as n[01-08]: {error}") from error


def default_state_dir() -> Path:
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "bftrainer"


class Settings(BaseModel):
    """Everything that a site or user can set."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    state_dir: Annotated[Path, Field(description="store, socket and logs")] = Field(
        default_factory=default_state_dir
    )
    allocator: Annotated[Literal["auto", "milp", "knapsack", "equal"], Field(description="who decides")] = (
        "auto"
    )
    solver: Annotated[
        Literal["highs", "gurobi", "cplex", "scip", "cbc"], Field(description="who solves the MILP")
    ] = "highs"
    objective: Annotated[
        str,
        Field(
            description="what is maximised: throughput (samples/s), efficiency (relative to one node), "
            "priority (efficiency times the trainer's priority), or a mixture: 0.7*efficiency+0.3*priority"
        ),
    ] = "throughput"
    t_fwd_s: Annotated[
        Positive | None,
        Field(description="time for which nobody is assumed to leave; auto: from how long nodes stay"),
    ] = 120.0
    max_parallel: Annotated[
        Annotated[int, Field(ge=1, le=100_000)] | None,
        Field(description="trainers that may hold nodes, by priority, then first come; auto: all that wait"),
    ] = 10
    nodes_per_trainer: Annotated[
        Annotated[float, Field(ge=1, le=1e6)] | None,
        Field(
            description="with max_parallel auto: only the first of the queue may hold nodes, one for so many "
            "nodes of the pool; few finish sooner, many use nodes better; none: no such limit"
        ),
    ] = None
    ageing_s: Annotated[
        Positive | None,
        Field(
            description="with max_parallel auto: waiting so long doubles a trainer's weight; never: no effect"
        ),
    ] = 86_400.0
    user_max_nodes: Annotated[
        Annotated[int, Field(ge=1)] | None, Field(description="most nodes of one user's trainers together")
    ] = None
    node_classes: Annotated[
        dict[str, str],
        Field(description="classes of nodes that no trainer mixes, as name: nodes, such as fat: n[01-08]"),
    ] = Field(default_factory=dict)
    departure_groups: Annotated[
        Literal["none", "joined", "cabinet"],
        Field(description="nodes expected to leave together: that joined together, or of one cabinet"),
    ] = "none"
    milp_time_limit_s: Annotated[Positive, Field(description="time limit of the MILP solver")] = 2.0
    milp_gap: Annotated[
        float,
        Field(
            ge=0, lt=1, description="relative gap at which a plan under side constraints counts as optimal"
        ),
    ] = 1e-3
    profile_sizes: Annotated[
        int,
        Field(
            ge=0,
            le=30,
            description="new trainers without a curve are measured first on so many sizes: n_min, twice "
            "that, and so on; 0: no such phase",
        ),
    ] = 0
    max_failures: Annotated[
        int, Field(ge=0, le=1000, description="failures of a program in a row, without progress, to bear")
    ] = 3
    poll_s: Annotated[Positive, Field(description="time between two looks at the scheduler")] = 0.5
    debounce_s: Annotated[Seconds, Field(description="how long a node must be idle before it joins")] = 0.0
    failed_polls: Annotated[
        int, Field(ge=1, le=1000, description="failed polls in a row before the status says degraded")
    ] = 3
    poll_max_s: Annotated[
        Positive,
        Field(description="longest time between two looks, where we hold nothing and nothing changes"),
    ] = 5.0
    min_hole_s: Annotated[
        Seconds, Field(description="nodes whose hole is expected to end within this time are left alone")
    ] = 30.0
    exclude_nodes: Annotated[
        str, Field(description="nodes to keep out, such as n[01-08],gpu3; empty: none")
    ] = ""
    vacate_s: Annotated[
        Seconds,
        Field(description="time that workers have to let go of a node that a main job can start on"),
    ] = 0.3
    spare_s: Annotated[
        Seconds, Field(description="how long a pilot is kept that no trainer needs any more")
    ] = 10.0
    submissions_per_minute: Annotated[
        int, Field(ge=1, le=100_000, description="most pilots submitted in a minute")
    ] = 120
    listen: Annotated[
        str,
        Field(
            description="host:port where agents connect; empty: a free port of `address`, kept from then on"
        ),
    ] = ""
    # Slurm, see docs/slurm.md
    scheduler: Annotated[
        Literal["slurm", "local"],
        Field(description="whose idle nodes to use: Slurm's, or slots of this machine as a log has them"),
    ] = "slurm"
    slurm_partition: Annotated[
        str, Field(description="the partition that pilots go to; empty: Slurm's default one")
    ] = ""
    slurm_watch: Annotated[
        str,
        Field(description="the partitions whose nodes are looked at, as a,b; empty: the one of the pilots"),
    ] = ""
    slurm_qos: Annotated[str, Field(description="the QOS of pilots; empty: the user's default")] = ""
    slurm_account: Annotated[str, Field(description="the account of pilots; empty: the user's default")] = ""
    slurm_mode: Annotated[
        Literal["preempt", "window"],
        Field(
            description="preempt: Slurm takes nodes back from pilots; window: it does not, so that every "
            "pilot has a time limit that ends before its hole does"
        ),
    ] = "preempt"
    slurm_options: Annotated[
        str, Field(description="more options of sbatch for pilots, as on its command line")
    ] = ""
    pilot_template: Annotated[
        str, Field(description="file with the batch script of pilots (jinja2); empty: bftrainer's own")
    ] = ""
    pilot_python: Annotated[
        str, Field(min_length=1, description="the Python with bftrainer on the nodes")
    ] = sys.executable
    pilot_max_s: Annotated[
        Annotated[float, Field(ge=60, le=1e7, allow_inf_nan=False)] | None,
        Field(
            description="longest time limit of a pilot; auto: "
            + ", ".join(f"{limit_s:.0f} with slurm_mode {mode}" for mode, limit_s in PILOT_MAX_S.items())
        ),
    ] = None
    claim_patience_s: Annotated[
        Positive,
        Field(description="how long nodes are kept free for a main job that should start and does not"),
    ] = 120.0
    command_timeout_s: Annotated[
        Positive, Field(description="time for one of the batch system's commands before it is killed")
    ] = 20.0

    pilot_start_s: Annotated[Positive, Field(description="how long a pilot may take to report")] = 60.0
    warm_pool: Annotated[
        bool,
        Field(description="keep a process with torch loaded on every node, so that workers start quickly"),
    ] = True
    address: Annotated[
        str, Field(min_length=1, description="where nodes reach this machine: agents connect there")
    ] = "127.0.0.1"
    metrics_port: Annotated[
        Annotated[int, Field(ge=1, le=65_535)] | None,
        Field(
            description="serve /metrics for Prometheus on this port of 127.0.0.1; none: on the socket only"
        ),
    ] = None
    reconnect_s: Annotated[Positive, Field(description="how long an agent may take to connect again")] = 5.0
    orphan_s: Annotated[Positive, Field(description="how long an agent goes on without a daemon")] = 60.0
    stop_grace_s: Annotated[
        Positive, Field(description="time for a worker to checkpoint and leave before it is killed")
    ] = 15.0

    log_format: Annotated[
        Literal["auto", "text", "logfmt"],
        Field(
            description="how the daemon logs: text, logfmt (for journald); auto: by who reads standard error"
        ),
    ] = "auto"

    # who may do what, see docs/site-mode.md
    mode: Annotated[
        Literal["single", "site"],
        Field(
            description="whose trainers: those of the daemon's own user (single), or everybody's, each run "
            "as the user who submitted it (site)"
        ),
    ] = "single"
    socket: Annotated[Path, Field(description="where users and agents of this machine reach the daemon")] = (
        Field(default_factory=lambda data: data.get("state_dir", default_state_dir()) / SOCKET)
    )
    admins: Annotated[
        tuple[str, ...],
        Field(description="site mode: who may see and cancel all trainers, and pause all: users and @groups"),
    ] = ()
    exec_prefix: Annotated[
        tuple[str, ...],
        Field(
            description="site mode: words before a command that is to run as a trainer's user, such as "
            "sudo -n -u {user} --"
        ),
    ] = ()
    munge: Annotated[bool, Field(description="let in who comes over TCP and shows a munge credential")] = (
        False
    )
    munge_socket: Annotated[Path, Field(description="where munged listens")] = Path(
        "/run/munge/munge.socket.2"
    )
    server: Annotated[
        Annotated[str, Field(pattern=r"^.+:[0-9]{1,5}$")] | None,
        Field(description="host:port of the daemon to talk to, with munge; none: the one at socket"),
    ] = None
    metrics_trainers: Annotated[
        bool, Field(description="site mode: whoever reads metrics_port sees every trainer's metrics")
    ] = False
    trainer_dir: Annotated[
        str,
        Field(
            min_length=1,
            description="folder of trainers' logs and checkpoints: relative to a trainer's workdir, or "
            "absolute; {user} is who submitted it",
        ),
    ] = ".bftrainer"

    @field_validator("state_dir", "socket", "munge_socket")
    @classmethod
    def _whole_path(cls, path: Path) -> Path:
        return path.expanduser().absolute()

    @field_validator("admins", "exec_prefix", mode="before")
    @classmethod
    def _words(cls, words: object) -> object:
        if isinstance(words, str):
            return tuple(shlex.split(words))
        if isinstance(words, list) and any(isinstance(word, dict) for word in words):
            raise ValueError("in YAML, {user} has to be quoted: '{user}'")
        return words

    @field_validator("exec_prefix", "trainer_dir")
    @classmethod
    def _only_user_is_filled_in(cls, given: str | tuple[str, ...]) -> str | tuple[str, ...]:
        for word in (given,) if isinstance(given, str) else given:
            try:
                word.format(user="")
            except (LookupError, ValueError):
                raise ValueError("{user} is all that can be filled in; write other braces twice") from None
        return given

    @field_validator(*NO_VALUE, mode="before")
    @classmethod
    def _left_open(cls, value: object, info: ValidationInfo) -> object:
        return None if value == NO_VALUE[str(info.field_name)] else value

    @field_validator("exclude_nodes", mode="before")
    @classmethod
    def _joined(cls, nodes: object) -> object:
        if isinstance(nodes, list) and all(isinstance(node, str) for node in nodes):
            return ",".join(nodes)
        return nodes

    @field_validator("exclude_nodes")
    @classmethod
    def _nodes_to_exclude(cls, text: str) -> str:
        if text:
            nodeset(text)
        return text

    @field_validator("listen")
    @classmethod
    def _host_and_port(cls, text: str) -> str:
        host, _, port = text.rpartition(":")
        if text and not (host and port.isdecimal() and int(port) < 65_536):
            raise ValueError("give host:port of this machine, such as 10.0.0.1:7464; ports go to 65535")
        return text

    @field_validator("slurm_options")
    @classmethod
    def _options_of_sbatch(cls, text: str) -> str:
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise ValueError(f"{error}; quote it like a shell's line") from error
        if any(not word.startswith("-") for word in words):
            raise ValueError("options only, such as --constraint=gpu: the script is the pilots' template")
        return text

    @field_validator("objective")
    @classmethod
    def _known_objective(cls, text: str) -> str:
        from bftrainer.allocate import metric  # noqa: PLC0415  NumPy takes a while to import

        metric.parse(text)
        return text

    @field_validator("node_classes", mode="before")
    @classmethod
    def _from_text(cls, classes: object) -> object:
        if not isinstance(classes, str):
            return classes
        try:
            return yaml.safe_load(classes)
        except yaml.YAMLError as error:
            raise ValueError("no YAML; write it like {fat: 'n[01-08]'}") from error

    @field_validator("node_classes")
    @classmethod
    def _node_sets(cls, classes: dict[str, str]) -> dict[str, str]:
        seen: dict[str, str] = {}
        for name, text in classes.items():
            for node in nodeset(text):
                if seen.setdefault(node, name) != name:
                    raise ValueError(f"node {node} is in {seen[node]} and in {name}; keep one")
        return classes

    @model_validator(mode="after")
    def _equal_shares_know_one_class(self) -> Settings:
        if self.allocator == "equal" and self.node_classes:
            raise ValueError("equal shares know one class of nodes; use the allocator auto with node_classes")
        return self

    @model_validator(mode="after")
    def _nodes_per_trainer_needs_auto(self) -> Settings:
        if self.nodes_per_trainer is not None and self.max_parallel is not None:
            raise ValueError(
                f"nodes_per_trainer {self.nodes_per_trainer:g} counts with max_parallel auto only; "
                f"max_parallel is {self.max_parallel}"
            )
        return self

    @model_validator(mode="after")
    def _what_the_mode_needs(self) -> Settings:
        as_user = any("{user}" in word for word in self.exec_prefix)
        if self.mode == "single" and self.exec_prefix:
            raise ValueError("exec_prefix counts with mode site only; leave it out")
        if self.mode == "site" and not as_user:
            raise ValueError(
                "mode site needs an exec_prefix with {user}, such as sudo -n -u {user} --: pilots run as "
                "the users whose trainers they serve"
            )
        if self.mode == "site" and self.scheduler == "local":
            raise ValueError("the local scheduler runs everything as the daemon; mode site needs another one")
        if self.mode == "site" and self.socket.is_relative_to(self.state_dir):
            raise ValueError(
                f"mode site: nobody else can reach the socket in state_dir {self.state_dir}; set socket to a "
                "path such as /run/bftrainer/daemon.sock"
            )
        return self

    def as_user(self, user: str) -> tuple[str, ...]:
        """The words before a command that is to run as `user`; none where that is our own business."""
        return tuple(word.format(user=user) for word in self.exec_prefix)

    @cached_property
    def engine(self) -> EngineSettings:
        return EngineSettings(
            allocator=self.allocator,
            solver=self.solver,
            objective=self.objective,
            t_fwd_s=self.t_fwd_s,
            max_parallel=self.max_parallel,
            nodes_per_trainer=self.nodes_per_trainer,
            ageing_s=self.ageing_s,
            user_max_nodes=self.user_max_nodes,
            node_classes={name: frozenset(nodeset(text)) for name, text in self.node_classes.items()},
            departure_groups=self.departure_groups,
            milp_time_limit_s=self.milp_time_limit_s,
            milp_gap=self.milp_gap,
            profile_sizes=self.profile_sizes,
            max_failures=self.max_failures,
        )

    @cached_property
    def excluded(self) -> frozenset[str]:
        """The nodes to keep out."""
        return frozenset(nodeset(self.exclude_nodes)) if self.exclude_nodes else frozenset()

    @property
    def pilot_limit_s(self) -> float:
        """The longest time limit of a pilot."""
        return PILOT_MAX_S[self.slurm_mode] if self.pilot_max_s is None else self.pilot_max_s

    @property
    def database(self) -> Path:
        return self.state_dir / "bftrainer.db"
