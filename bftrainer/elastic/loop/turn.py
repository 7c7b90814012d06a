"""One turn of the script's loop: the step that is under way, and what has become of it so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from bftrainer.elastic.members.group import GroupBroken
from bftrainer.elastic.state.position import Position
from bftrainer.elastic.train.sampler import RankShare


@dataclass(slots=True)
class Turn:
    """A step that is under way. Only after it, between two turns, other members come or go."""

    share: RankShare  # this rank's
    before: Position
    broken: GroupBroken | None = None  # why the step cannot be taken
    is_taken: bool = False
    is_torn: bool = False  # an update has begun and not ended: by an error in it, the state is worth nothing
    calls: int = 0  # of `step`, on the last micro-batch
    asked: set[str] = field(default_factory=set)  # the optimisers to step after the present micro-batch


class Stepped:
    """The optimisers that have been stepped in the step under way, in order; a part of the training state.

    Where a run has several, a node may be lost between the step of one and that of the next. The samples come
    again then, and the optimisers that are named here have had theirs.
    """

    def __init__(self) -> None:
        self.names: list[str] = []

    def state_dict(self) -> dict[str, Any]:
        """Its part of the training state."""
        return {"names": [*self.names]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict` has returned."""
        self.names = [*state_dict["names"]]
