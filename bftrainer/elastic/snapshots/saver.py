"""Saves the training state: by snapshots between two steps, which the agent writes while training goes on.

The agent gives a worker two pieces of shared memory. A piece is the worker's until it has said that a whole
snapshot is in it ("snapshot"), and the agent's until that has said that it is done with it ("written"). So
what the agent writes is never torn, whenever the worker is killed; and while one snapshot is being written,
there is room for the last.
"""

from __future__ import annotations

import contextlib
import pickle
import threading
from collections.abc import Sequence
from typing import Any

import torch

from bftrainer.elastic.process.background import calling, start
from bftrainer.elastic.process.channel import Channel
from bftrainer.elastic.process.warnings import note
from bftrainer.elastic.snapshots.image import Image, check_readable, image_of
from bftrainer.elastic.snapshots.memory import SharedMemory
from bftrainer.elastic.state.checkpoint import Checkpoints
from bftrainer.elastic.state.packing import size_of, tensors_of
from bftrainer.elastic.state.staging import Staging
from bftrainer.elastic.state.training_state import TrainingState

AROUND = 1024
"""Bytes that a tensor may need in a file besides its own."""


class Saver:
    """The snapshots and checkpoints of one worker. `slots`: descriptors of the shared memory.

    Without any, or without memory for a snapshot, training stands still while the state is written.
    """

    def __init__(
        self, state: TrainingState, checkpoints: Checkpoints, channel: Channel, slots: Sequence[int]
    ) -> None:
        self._state, self._checkpoints, self._channel = state, checkpoints, channel
        self._memory = dict(enumerate(map(SharedMemory, slots)))
        self._free = set(self._memory)
        self._changed = threading.Condition()
        self._preparing: threading.Thread | None = None
        self._is_checked = False
        self._error = ""
        self.saved: int | None = None
        """The step of the last checkpoint of this worker that is whole on the disk."""

    @property
    def busy(self) -> bool:
        """True if a checkpoint is being written in the background, or memory for one is made ready."""
        is_preparing = self._preparing is not None and self._preparing.is_alive()
        return is_preparing or len(self._free) < len(self._memory)

    @property
    def error(self) -> str:
        """Reason why the last checkpoint could not be written; empty if it could."""
        return self._error or self._checkpoints.error

    def prepare(self) -> None:
        """Make the memory of snapshots ready, in the background: it takes seconds for gigabytes."""
        state = self._state.as_dict()
        tensors = tensors_of(state)
        nbytes, pinned = size_of(state) + AROUND * (len(tensors) + 1), any(t.is_cuda for t in tensors)

        def run() -> None:
            with contextlib.suppress(OSError):  # to save says so
                self._checkpoints.name_of(0, 0)
            for memory in self._memory.values():
                if memory.has_room(nbytes):
                    memory.prepare(nbytes, pinned=pinned)

        self._preparing = start(calling()(run), "bftrainer-prepare")

    def save(self, generation: int, *, wait: bool) -> None:
        """Save the present state: by a snapshot which the agent writes, or with `wait` has written."""
        slot = self._snapshot(generation)
        if slot is None and self.busy:  # the memory of the one before is enough for this one, too
            with self._changed:
                self._changed.wait_for(lambda: not self.busy)
            slot = self._snapshot(generation)
        if slot is None:
            if self._checkpoints.save(self._state.snapshot(), generation):
                self.saved = self._state.position.step
        elif wait:
            with self._changed:
                self._changed.wait_for(lambda: slot in self._free)

    def written(self, message: dict[str, Any]) -> None:
        """Take in that the agent is done with a snapshot. Another thread calls it."""
        with self._changed:
            self._error = message["error"]
            if message["saved"]:
                self.saved = message["step"]
            self._free.add(message["slot"])
            self._changed.notify_all()
        if self._error:
            note(self._error)

    def _snapshot(self, generation: int) -> int | None:
        """Take a snapshot and hand it to the agent. Returns where it is; None: there is no memory for it."""
        if self._preparing is not None:
            self._preparing.join()
            self._preparing = None
        state = self._state.as_dict()
        try:
            if not self._is_checked:
                check_readable(state)
                self._is_checked = True
            image = image_of(state)
            slot = next((n for n in sorted(self._free) if self._memory[n].has_room(image.nbytes)), None)
            if slot is None:
                return None
            name = self._checkpoints.name_of(self._state.position.step, generation)
            self._copy(image, self._memory[slot])
        except (OSError, RuntimeError, MemoryError, pickle.PickleError):
            return None  # to write it says why, or does without
        with self._changed:
            self._free.discard(slot)
        step = self._state.position.step
        self._channel.send("snapshot", slot=slot, bytes=image.nbytes, file=name, step=step)
        return slot

    def _copy(self, image: Image, memory: SharedMemory) -> None:
        whole = memory.of(image.nbytes)
        for place, data in image.around:
            part = torch.frombuffer(bytearray(data), dtype=torch.uint8)
            whole[place : place + len(data)].copy_(part)
        staging = Staging(tensor for _, tensor in image.tensors)
        staging.follow()
        with staging.copies():
            for place, tensor in image.tensors:
                size = tensor.numel() * tensor.element_size()
                room = whole[place : place + size].view(tensor.dtype).view(tensor.shape)
                room.copy_(tensor.detach(), non_blocking=True)
