"""A script's early end of its run, by `run.stop()`, which checkpoints record."""

from __future__ import annotations

from typing import Any

from bftrainer.elastic.process.warnings import note

PART = "end by the script"
"""The name of its part of the training state; no part of a script can have it."""


class Stopped:
    """Records that the script has said so: a part of the training state.

    All nodes may be lost in the code after the loop, or in the step in which the members agree on the end.
    The run that goes on from a checkpoint of that time takes no further step then. One that has another end,
    such as more `epochs`, samples (`budget`) or progress (`goal`), goes on.
    """

    def __init__(self, epochs: int | None, budget: int | None, goal: float | None = None) -> None:
        self.is_said = False
        self._had_another_end = False  # the one that was loaded last, and had been stopped
        self._end = f"{epochs} epochs, {budget} samples" + (f", {goal} steps" if goal else "")

    def state_dict(self) -> dict[str, Any]:
        """Its part of the training state. In words, as nodes may differ in it for a step: one node's call of
        `run.stop()` suffices."""
        return {"said": "yes" if self.is_said else "no", "end": self._end}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict` has returned."""
        said, is_same = state_dict["said"] == "yes", state_dict["end"] == self._end
        self.is_said, self._had_another_end = said and is_same, said and not is_same

    def told(self) -> bool:
        """True if the checkpoint from which all begin is of a run that has ended; the log tells of it."""
        if self.is_said:
            note("the script had ended the run there (run.stop()): no further step is taken")
        elif self._had_another_end:
            note("the script had ended the run there (run.stop()), with other epochs or work: now it goes on")
        return self.is_said
