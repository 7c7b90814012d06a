"""Turns on a device that several trainers share (`share: time`): the worker's end.

A worker has its turn from when a step's samples are there until its backward pass is over, and gives it back
before gradients are exchanged. So one trainer computes while another exchanges, or loads data. The agent says
whose turn it is, see `agent.turns`. After Jigsaw (Kumar et al. 2021).
"""

from __future__ import annotations

import contextlib
import os
import resource
import socket
from collections.abc import Iterable

import torch

from bftrainer.elastic.loop.observers import StepObserver
from bftrainer.elastic.process import warnings
from bftrainer.elastic.process.channel import Orders
from bftrainer.elastic.train.average import Averaging
from bftrainer.elastic.train.batches import MicroBatch
from bftrainer.messages.partial import LOST_TURN, WITHIN_BACKWARD

AS_KIB = 1024


class TakesTurns(StepObserver):
    """Takes this worker's turn before each forward pass, and gives it back after the backward pass.

    Args:
        address: the name of the agent's socket.
        about: its first message: the trainer's number, and the device.
        device: where the model is.
    """

    def __init__(self, address: str, about: str, device: torch.device) -> None:
        self._address, self._about, self._device = address, about, device
        self._socket: socket.socket | None = None
        self._has_turn = False
        self._memory = _memory_of(device)

    @classmethod
    def of(
        cls, orders: Orders | None, models: Iterable[torch.nn.Module], averaging: Averaging
    ) -> list[TakesTurns]:
        """Those of a run whose spec says `share: time`; none otherwise.

        Raises:
            ValueError: its gradients are exchanged while it computes.
        """
        if orders is None or not orders.turns:
            return []
        if averaging.overlaps or not averaging.averages:
            raise ValueError(WITHIN_BACKWARD.say())
        parameters = (p for model in models for p in model.parameters())
        device = next((p.device for p in parameters), torch.device("cpu"))
        return [cls(orders.turns["socket"], f"{orders.trainer} {orders.turns['device']}", device)]

    def before_compute(self) -> None:
        """See `StepObserver`: wait for this worker's turn."""
        if self._has_turn:
            return
        self._has_turn = True
        try:
            if self._socket is None:
                self._socket = socket.socket(socket.AF_UNIX)
                self._socket.connect(f"\0{self._address}")
                self._socket.sendall(f"{self._about}\n".encode())
            self._socket.sendall(b"take\n")
            while (said := self._heard()) != b"go":
                if said == b"lost":
                    warnings.warn(LOST_TURN.say())
        except OSError:  # the agent is gone, and this process soon with it
            self._has_turn = False

    def before_average(self, optimizer: str, part: MicroBatch) -> None:
        """See `StepObserver`: the backward pass is over."""
        self._give()

    def step_ends(self, *, is_whole: bool) -> None:
        """See `StepObserver`."""
        self._give()

    def _give(self) -> None:
        if not self._has_turn or self._socket is None:
            return
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        self._has_turn = False
        with contextlib.suppress(OSError):  # the agent is gone, and this process soon with it
            self._socket.sendall(f"give {_peak_of(self._device)} {self._memory}\n".encode())

    def _heard(self) -> bytes:
        """The next word of the agent.

        Raises:
            OSError: it is gone.
        """
        line = b""
        assert self._socket is not None  # noqa: S101  connected before
        while not line.endswith(b"\n"):
            part = self._socket.recv(1)
            if not part:
                raise ConnectionError("the agent is gone")
            line += part
        return line.strip()


def _memory_of(device: torch.device) -> int:
    """The memory of a device (bytes); of the CPU, that of this machine."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _peak_of(device: torch.device) -> int:
    """The most memory that this process has had on a device (bytes)."""
    if device.type == "cuda":
        return torch.cuda.max_memory_reserved(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * AS_KIB
