"""Where a trainer's logs and checkpoints are. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bftrainer.model.trainer import TrainerSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Folders:
    """`trainer_dir`: below a spec's working directory, may contain {user}.

    `store_id` tells the trainers of one daemon's store from those of others, which may have the same numbers.
    """

    trainer_dir: str
    store_id: str

    def logs(self, trainer: int, spec: TrainerSpec) -> Path:
        """The folder in which a trainer's workers write what they print, one file a node.

        It belongs to the trainer's user, and only that user's processes open it.
        """
        place = Path(spec.workdir, self.trainer_dir.format(user=spec.user))
        return place / f"{trainer}-{spec.name}-{self.store_id}"

    def checkpoints(self, trainer: int, spec: TrainerSpec) -> Path:
        """The folder of a trainer's checkpoints: the one of its spec, or one among its logs."""
        return Path(spec.checkpoint_dir or self.logs(trainer, spec) / "checkpoints")
