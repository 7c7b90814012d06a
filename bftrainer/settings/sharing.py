"""The settings that say what is shared out, whole nodes or single GPUs, and who may share a node."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, field_validator, model_validator

from bftrainer.model.policy import EngineSettings
from bftrainer.settings.setting import Section, Setting

DEFAULT: Any = EngineSettings()


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
            "cannot use goes to the others. `{}`: the objective alone decides.",
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
        if not isinstance(shares, str):
            return shares
        try:
            return yaml.safe_load(shares)
        except yaml.YAMLError as error:
            raise ValueError("no YAML; write it like {ann: 2, others: 1}") from error

    @model_validator(mode="after")
    def _whole_nodes_have_no_parts(self) -> SharingSettings:
        if self.share == "node" and self.gpus_per_node != 1:
            raise ValueError(
                f"gpus_per_node {self.gpus_per_node} counts with share gpu only; set share: gpu, or leave it "
                "out"
            )
        return self
