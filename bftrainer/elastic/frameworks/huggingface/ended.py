"""Keeps an ended training ended where its process restarts, to repeat the code after `train`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from bftrainer.elastic.recorded import watcher

SEEN = "num_input_tokens_seen"


class EndedTraining:
    """Notes that a training had ended when its checkpoint was written: by its number of steps, or because the
    script stopped it, as an early stopping does. Hugging Face knows of neither within an epoch, and of no
    stop at an epoch's end: it takes a step more, which this takes back.

    Args:
        state: the Trainer's, as it came from the checkpoint; None without one.
        mark: what the callback has noted of that checkpoint, see `noted`.
    """

    def __init__(self, state: Any = None, mark: Mapping[str, Any] | None = None) -> None:
        step = 0 if state is None else state.global_step
        is_stopped = step and (mark or {}).get("stopped") == state.max_steps  # with more steps it goes on
        self.is_so = bool(step and (is_stopped or step >= state.max_steps))
        self._at = {name: getattr(state, name, None) for name in ("global_step", "epoch", SEEN)}
        self._buffers: list[tuple[torch.Tensor, torch.Tensor]] = []

    def before_step(self, model: torch.nn.Module | None) -> None:
        """Keep what the forward pass of the step that is one too many changes."""
        if self.is_so:
            watcher.watching.said("aside", {})
        if self.is_so and model is not None:
            self._buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]

    def before_update(self, model: torch.nn.Module) -> None:
        """Have that step change no weights."""
        if self.is_so:
            model.zero_grad(set_to_none=True)

    def after_step(self, state: Any, control: Any) -> None:
        """Take it back, and have the training end at once: what its end led to has been done."""
        if not self.is_so:
            return
        for name, value in self._at.items():
            setattr(state, name, value)
        with torch.no_grad():
            for buffer, before in self._buffers:
                buffer.copy_(before)
        self.leave_out(control)
        control.should_training_stop = True

    def leave_out(self, control: Any) -> None:
        """Have nothing logged, evaluated or saved once more."""
        if self.is_so:
            control.should_log = control.should_evaluate = control.should_save = False


def noted(state: Any, *, is_stopped: bool) -> dict[str, Any]:
    """Entry in a checkpoint's mark for a training that the script has stopped."""
    return {"stopped": state.max_steps} if is_stopped and state.global_step < state.max_steps else {}
