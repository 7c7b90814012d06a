"""The settings that shape decisions."""

from __future__ import annotations

from dataclasses import fields
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from bftrainer import nodesets
from bftrainer.messages.files.settings import (
    IN_TWO_CLASSES,
    ONE_CLASS,
    PARTS_OF_WHOLE,
    PLACES_AND_NODES,
    UTILITIES,
)
from bftrainer.model.policy import DepartureGroups, EngineSettings, Share, ShareNodes, WeightsBy
from bftrainer.settings.setting import Positive, Section, Setting
from bftrainer.yaml_files import YamlFileError, plain_values

DEFAULT: Any = EngineSettings()
"""The engine's defaults are the settings' defaults. Untyped: there, choices are plain strings."""

BOTH = ("daemon", "replay")


def _from_yaml(given: object, example: str) -> object:
    """A mapping as it is; a text of the command line or the environment as YAML has it."""
    try:
        return plain_values(given, "text") if isinstance(given, str) else given
    except YamlFileError as error:
        raise ValueError(f"no YAML; write it like {example}") from error


class SharingSettings(Section):
    """Part of the settings that shape decisions."""

    share: Annotated[
        Literal["node", "gpu"],
        Setting(
            help="what trainers get: whole nodes, or single GPUs, so that several share a node",
            more="With `gpu`, what counts nodes counts GPUs (`user_max_nodes`, `nodes_per_trainer`, "
            "`headroom`). Slurm needs `harvest: gpus` for it. See [Parts of nodes](gpu.md#parts-of-nodes).",
            commands=("daemon",),
        ),
    ] = DEFAULT.share.value
    user_shares: Annotated[
        dict[str, Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)]],
        Setting(
            help="weights by which users share the pool while several want it, as user: weight; others: of "
            "all that are not named",
            more="`{ann: 2, others: 1}`, in the environment, too. `{others: 1}`: equal shares. What one user "
            "cannot use goes to the others. `{}`: the objective alone decides. With `share: gpu` and "
            "`share_nodes: no`, shares are whole nodes.",
            default_words="`{}`; `{others: 1}` with `mode: site`",
            live=True,
            commands=("replay",),
        ),
    ] = Field(default_factory=dict)
    gpus_per_node: Annotated[
        int,
        Field(ge=1, le=1024),
        Setting(
            help="with share gpu: the GPUs of a whole node, for trainers that ask for nodes",
            unit="GPUs",
        ),
    ] = DEFAULT.gpus_per_node
    avoid_interference: Annotated[
        bool,
        Setting(
            help="with share gpu: no two trainers of several nodes are on one node, where they would share "
            "its network",
            live=True,
            commands=("daemon", "replay"),
        ),
    ] = DEFAULT.avoid_interference
    share_nodes: Annotated[
        Literal["users", "no"],
        Setting(
            help="with share gpu: whether trainers of several users may be on one node (users) or not (no)",
            live=True,
            commands=("daemon", "replay"),
        ),
    ] = DEFAULT.share_nodes.value

    @field_validator("user_shares", mode="before")
    @classmethod
    def _shares_from_text(cls, shares: object) -> object:
        return _from_yaml(shares, "{ann: 2, others: 1}")

    @field_validator("share_nodes", mode="before")
    @classmethod
    def _no_is_a_word(cls, given: object) -> object:
        """Take `no` as YAML reads it."""
        return "no" if given is False else given

    @model_validator(mode="after")
    def _whole_nodes_have_no_parts(self) -> SharingSettings:
        if self.share == "node" and self.gpus_per_node != 1:
            raise ValueError(PARTS_OF_WHOLE.say(n=self.gpus_per_node))
        return self


class AimSettings(SharingSettings):
    """Part of the settings that shape decisions: what is maximised."""

    objective: Annotated[
        str,
        Setting(
            help="what is maximised: throughput (samples/s), efficiency (relative to one node), "
            "priority (efficiency times the trainer's priority), goodput (progress relative to one node), or "
            "a mixture: 0.7*efficiency+0.3*priority",
            more="With `throughput`, nodes go where they add most samples per second; trainers with slow "
            "models wait. `efficiency` treats trainers of different kinds alike. `goodput` counts what "
            "samples are worth where [a batch adapts](adaptive-batch.md#nodes-by-goodput), and is "
            "`efficiency` for all others.",
            live=True,
            commands=BOTH,
        ),
    ] = DEFAULT.objective
    goodput_power: Annotated[
        float,
        Field(ge=-2, le=10, allow_inf_nan=False),
        Setting(
            help="with goodput in the objective: the power p of the speed-ups, whose p-norm is maximised; 1: "
            "their mean, 0: their geometric mean, -1: their harmonic mean",
            more="The lower, the more those count that have few nodes. Up to 0, a trainer without nodes "
            "counts as one of speed-up 0.1.",
            live=True,
            commands=BOTH,
        ),
    ] = DEFAULT.goodput_power
    weights_by: Annotated[
        Literal["spec", "service", "work"],
        Setting(
            help="what trainers count by, times the weights of their specs: spec (nothing else), service "
            "(less, the more node-time they have had), or work (more, the less they have left to do)",
            more="`service` has Pollux's job weights. With `work`, the trainer with most to do counts once, "
            "the next twice, and so on, by the time that the rest takes on one node. The rest is what the "
            "spec or the script says; else, as much as it has had so far.",
            live=True,
            commands=BOTH,
        ),
    ] = DEFAULT.weights_by.value
    service_threshold_s: Annotated[
        Positive,
        Setting(
            help="with weights_by service: the node-time up to which trainers count alike",
            more="GPU-time with `share: gpu`. The paper's 4 GPU-hours.",
            unit="s",
            live=True,
            commands=BOTH,
        ),
    ] = DEFAULT.service_threshold_s
    service_decay: Annotated[
        float,
        Field(ge=0, le=10, allow_inf_nan=False),
        Setting(
            help="with weights_by service: the power by which trainers count less beyond that time; 0: not "
            "at all",
            more="The weight is `service_threshold_s / node-time` to this power, the paper's lambda.",
            live=True,
            commands=BOTH,
        ),
    ] = DEFAULT.service_decay
    low_utility: Annotated[
        float,
        Field(ge=0, le=1, allow_inf_nan=False),
        Setting(
            help="a trainer gives nodes back where its utility, the speed-up over one node divided by its "
            "nodes, is below this: others get them, or the host",
            live=True,
            commands=("replay",),
        ),
    ] = DEFAULT.low_utility
    high_utility: Annotated[
        float,
        Field(ge=0, le=1, allow_inf_nan=False),
        Setting(
            help="and it gets more only where its utility is above this, as many as bring it closest to the "
            "middle of both; 0: all that help",
            more="Pollux's autoscaling (section 4.2.2), for each trainer: nodes that help little are not "
            "asked for. Goodput counts where [a batch adapts](adaptive-batch.md#nodes-by-goodput).",
            live=True,
            commands=("replay",),
        ),
    ] = DEFAULT.high_utility

    @model_validator(mode="after")
    def _utilities_are_in_order(self) -> AimSettings:
        if self.low_utility > self.high_utility:
            raise ValueError(UTILITIES.say(low=self.low_utility, high=self.high_utility))
        return self

    @field_validator("objective")
    @classmethod
    def _known_objective(cls, text: str) -> str:
        from bftrainer.allocate import metric  # noqa: PLC0415  NumPy takes a while to import

        metric.parse(text)
        return text


class DecisionSettings(AimSettings):
    """These decide which trainers hold which nodes. Replays and sweeps have them, too, as options and as
    parameters: all but `max_failures` and `max_failures_per_h`, as no program fails in a replay.
    [Formulation](contributing/formulation.md) has the mathematics."""

    title: ClassVar[str] = "Decisions"

    allocator: Annotated[
        Literal["auto", "milp", "knapsack", "equal"],
        Setting(
            help="the method that distributes nodes",
            more="`auto` is exact, with the MILP solver's help where plan and bound differ by more than "
            "`milp_gap`. `equal` is the published baseline, for one class of nodes only.",
            live=True,
            commands=BOTH,
        ),
    ] = DEFAULT.allocator
    solver: Annotated[
        Literal["highs", "gurobi", "cplex", "scip", "cbc"],
        Setting(
            help="the program that solves the MILP",
            more="Only `highs` comes with bftrainer; you install the others. If the solver does not work, "
            "`milp` refuses to start, and `auto` decides without it and says so.",
            live=True,
            commands=BOTH,
        ),
    ] = DEFAULT.solver
    t_fwd_s: Annotated[
        Positive | None,
        Setting(
            help="time for which all nodes are assumed to stay; auto: from how long nodes stay",
            more="A longer time accepts higher rescale costs. `auto`: as long as nodes like those in the "
            "pool have stayed, up to an hour.",
            unit="s",
            live=True,
            commands=BOTH,
            none_word="auto",
        ),
    ] = DEFAULT.t_fwd_s
    max_parallel: Annotated[
        Annotated[int, Field(ge=1, le=100_000)] | None,
        Setting(
            help="trainers that may hold nodes: by priority, then in turn between users, then first come, "
            "first served; auto: all that wait",
            more="The paper's P_jmax. A user that waits takes a place from one that has at least two more. A "
            "trainer that needs more nodes than it can ever get here takes no place.",
            unit="trainers",
            live=True,
            commands=BOTH,
            none_word="auto",
        ),
    ] = DEFAULT.max_parallel
    nodes_per_trainer: Annotated[
        Annotated[float, Field(ge=1, le=1e6)] | None,
        Setting(
            help="with max_parallel auto: only the first of the queue may hold nodes, one trainer for so "
            "many nodes of the pool; few finish sooner, many use nodes better; none: no such limit",
            unit="nodes",
            live=True,
            commands=BOTH,
            none_word="none",
        ),
    ] = DEFAULT.nodes_per_trainer
    ageing_s: Annotated[
        Positive | None,
        Setting(
            help="with max_parallel auto: every such time since its submission adds a trainer's weight once "
            "more; never: no ageing",
            more="The weight grows linearly: times `1 + waited / ageing_s`. So later trainers outbid an old "
            "one for a limited time only.",
            unit="s",
            live=True,
            commands=BOTH,
            none_word="never",
        ),
    ] = DEFAULT.ageing_s
    user_max_nodes: Annotated[
        Annotated[int, Field(ge=1, le=1_000_000)] | None,
        Setting(
            help="most nodes that one user's trainers hold together; none: no such limit",
            more="It bounds, too, what a user's scripts can keep from others while they start.",
            unit="nodes",
            live=True,
            commands=BOTH,
            none_word="none",
        ),
    ] = DEFAULT.user_max_nodes
    node_classes: Annotated[
        dict[str, str],
        Setting(
            help="classes of nodes that no trainer mixes, as name: nodes, such as fat: n[01-08]",
            more="`{fat: 'n[01-08]', thin: 'n[09-64]'}`, in the environment, too. All other nodes are one "
            "more class.",
            commands=("replay",),
        ),
    ] = Field(default_factory=dict)
    departure_groups: Annotated[
        Literal["none", "joined", "cabinet"],
        Setting(
            help="nodes expected to leave together: that joined together, or of one cabinet",
            more="Trainers are kept within few such groups. `cabinet`: nodes whose names differ in the last "
            "number only.",
            commands=BOTH,
        ),
    ] = DEFAULT.departure_groups.value
    milp_time_limit_s: Annotated[
        Positive,
        Setting(
            help="time limit of the MILP solver",
            more="After it, the best of incumbent, rounded plan and current allocation is taken.",
            unit="s",
            live=True,
            commands=BOTH,
        ),
    ] = DEFAULT.milp_time_limit_s
    milp_gap: Annotated[
        float,
        Field(ge=0, lt=1),
        Setting(
            help="relative gap at which a plan under side constraints counts as optimal",
            live=True,
            commands=BOTH,
        ),
    ] = DEFAULT.milp_gap
    profile_sizes: Annotated[
        int,
        Field(ge=0, le=30),
        Setting(
            help="new trainers without a curve are measured first on so many sizes: n_min, twice that, and "
            "so on; 0: no such phase",
            unit="sizes",
            live=True,
            commands=("replay",),
        ),
    ] = DEFAULT.profile_sizes
    max_failures: Annotated[
        int,
        Field(ge=0, le=1000),
        Setting(
            help="failures of a program in a row, without progress, before its trainer is given up",
            unit="failures",
            live=True,
        ),
    ] = DEFAULT.max_failures
    max_failures_per_h: Annotated[
        int,
        Field(ge=0, le=1000),
        Setting(
            help="failures of a program within an hour, also with progress between, before its trainer is "
            "given up: each costs all its nodes a start",
            unit="failures",
            live=True,
        ),
    ] = DEFAULT.max_failures_per_h

    @field_validator("node_classes", mode="before")
    @classmethod
    def _from_text(cls, classes: object) -> object:
        return _from_yaml(classes, "{fat: 'n[01-08]'}")

    @field_validator("node_classes")
    @classmethod
    def _node_sets(cls, classes: dict[str, str]) -> dict[str, str]:
        seen: dict[str, str] = {}
        for name, text in classes.items():
            for node in nodesets.expand(text, operations=True):
                if seen.setdefault(node, name) != name:
                    raise ValueError(IN_TWO_CLASSES.say(node=node, one=seen[node], other=name))
        return classes

    @model_validator(mode="after")
    def _equal_shares_know_one_class(self) -> DecisionSettings:
        if self.allocator == "equal" and self.node_classes:
            raise ValueError(ONE_CLASS.say())
        return self

    @model_validator(mode="after")
    def _nodes_per_trainer_needs_auto(self) -> DecisionSettings:
        if self.nodes_per_trainer is not None and self.max_parallel is not None:
            raise ValueError(PLACES_AND_NODES.say(nodes=self.nodes_per_trainer, places=self.max_parallel))
        return self

    @cached_property
    def engine(self) -> EngineSettings:
        """This section as the engine takes it: node sets are expanded to names."""
        sets = self.node_classes.items()
        classes = {name: frozenset(nodesets.expand(text, operations=True)) for name, text in sets}
        plain = {field.name: getattr(self, field.name) for field in fields(EngineSettings)}
        own = {
            "node_classes": classes,
            "departure_groups": DepartureGroups(self.departure_groups),
            "share": Share(self.share),
            "share_nodes": ShareNodes(self.share_nodes),
            "weights_by": WeightsBy(self.weights_by),
        }
        return EngineSettings(**{**plain, **own})
