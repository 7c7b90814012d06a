"""Gives each of a node's workers its number, its device and its cores."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bftrainer.agent import cores
from bftrainer.agent.devices import Device, PilotDevices, devices_of, seen, vendor_of
from bftrainer.agent.health import Health
from bftrainer.messages.ends import TOO_FEW_DEVICES

Env = tuple[tuple[str, str], ...]
THREADS = "OMP_NUM_THREADS"


class SeatsError(Exception):
    """A node has fewer usable devices than workers to run."""


@dataclass(frozen=True, slots=True)
class Seat:
    """A worker's place on its node. `device` is its own, which has the number `index` among those that it
    sees. `env` is added to its environment; `cores` is empty where it may use all of the pilot's."""

    local_rank: int = 0
    local_size: int = 1
    device: Device | None = None
    index: int = 0
    env: Env = ()
    cores: cores.Cores = ()


class Seats:
    """Gives out the devices and cores of a pilot, which are `devices` and `allowed`."""

    def __init__(self, devices: PilotDevices, allowed: Sequence[int]) -> None:
        self.kind = devices.kind
        self.health = Health(devices.all)
        self._allowed = tuple(allowed)

    @classmethod
    def of_this_process(cls) -> Seats:
        """Those of the pilot that this process runs in."""
        files = {name: Path(name).exists() for name in ("/dev/nvidiactl", "/dev/kfd")}
        return cls(devices_of(os.environ, vendor_of(files)), sorted(os.sched_getaffinity(0)))

    def told(self) -> dict[str, object]:
        """Describes the devices to the daemon, see `wire.messages.from_agent.Devices`."""
        return {"kind": self.kind, "count": len(self.health.usable), "out": list(self.health.out)}

    def give(self, count: int, env: Mapping[str, str], *, together: bool) -> list[Seat]:
        """The seats of `count` workers, whose spec sets `env`.

        Each sees its own device alone. With `together` each sees those of all, as scripts for torchrun and
        Horovod take that with the number LOCAL_RANK.

        A single worker keeps the environment of its pilot, but for devices that are out of use.

        Raises:
            SeatsError: there are fewer devices than workers.
        """
        there = len(self.health.usable)
        if count == 1 and there != 1:
            return [Seat(env=_env(self.health.usable) if self.health.out else ())]
        if self.kind and count > there:
            out = f"; out of use: {'; '.join(self.health.out)}" if self.health.out else ""
            raise SeatsError(TOO_FEW_DEVICES.say(count=count, devices=there, kind=f"{self.kind}{out}"))
        given: Sequence[Device | None] = self.health.give(count) or [None] * count
        if count == 1:
            return [Seat(device=given[0], env=_env(given))]
        parts = cores.shares(self._allowed, count, [cores.near(own.hardware) if own else () for own in given])
        return [
            Seat(
                local_rank=rank,
                local_size=count,
                device=device,
                index=rank if together else 0,
                env=(*_env(given if together else [device]), *self._threads(len(part), count, env)),
                cores=part,
            )
            for rank, (device, part) in enumerate(zip(given, parts, strict=True))
        ]

    def _threads(self, share: int, count: int, env: Mapping[str, str]) -> Env:
        if THREADS in env:
            return ()
        part = share if len(self._allowed) >= count else 1
        return ((THREADS, str(cores.threads(part, count, os.environ.get(THREADS, "")))),)


def _env(devices: Sequence[Device | None]) -> Env:
    there = [device for device in devices if device is not None]
    return tuple(seen(there).items()) if there else ()
