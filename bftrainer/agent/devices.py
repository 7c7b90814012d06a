"""The devices (GPUs) that a pilot has got, as its environment names them. Pure.

With cgroups a job sees its devices as 0, 1, ...; without, under the node's own numbers. Its environment names
them in the numbering that holds there, and workers get these names and never others.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

SIMULATED = "SIMULATED_VISIBLE_DEVICES"
"""Names devices that do not exist: to try several workers a node where there are none. Where it is set,
even to nothing, no others count."""
CUDA, HIP, ROCR, LEVEL_ZERO = (
    "CUDA_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "ZE_AFFINITY_MASK",
)
KINDS = {SIMULATED: "simulated", CUDA: "cuda", ROCR: "rocm", HIP: "rocm", LEVEL_ZERO: "level zero"}
"""Variable -> kind of the devices that it names; of several that are set, the first counts, and others that
name the same say the same: a batch system that does not know the vendor sets all."""
BELOW_ROCR = (HIP, CUDA, "GPU_DEVICE_ORDINAL")
"""AMD: these number the devices that `ROCR_VISIBLE_DEVICES` leaves visible."""
DEVICE_FILES = ("/dev/nvidiactl", "/dev/kfd", "/dev/dri/renderD128", "/dev/accel")
"""A machine with GPUs or other accelerators has at least one of these."""
MAX_DEVICES = 1024
HINTS = ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS")
_NAME = re.compile(r"\d+(\.\d+)?|(GPU|MIG)-[0-9A-Za-z/_-]+")
_RANGE = re.compile(r"(\d{1,6})-(\d{1,6})")


@dataclass(frozen=True, slots=True)
class Device:
    """One device, as the `variables` name it; `below` are those that count among what they leave visible.

    `hardware`: its number on the node, or its UUID.
    """

    name: str
    variables: tuple[str, ...]
    below: tuple[str, ...] = ()
    hardware: str = ""


@dataclass(frozen=True, slots=True)
class PilotDevices:
    """All devices of a pilot, of one kind; an empty kind and none where the environment names none."""

    kind: str = ""
    all: tuple[Device, ...] = ()


def devices_of(env: Mapping[str, str], vendor: str = "") -> PilotDevices:
    """The devices that an environment names. `vendor`: amd, nvidia or empty, see `vendor_of`; batch systems
    set variables of all vendors."""
    if vendor == "amd" and SIMULATED not in env:
        return _of_amd(env)
    variables = [SIMULATED] if SIMULATED in env else [CUDA] if vendor == "nvidia" else list(KINDS)
    for variable in variables:
        if names := names_in(env.get(variable, "")):
            alike = tuple(own for own in variables if names_in(env.get(own, "")) == names)
            return PilotDevices(KINDS[variable], _devices(env, names, alike))
    return PilotDevices()


def vendor_of(present: Mapping[str, bool]) -> str:
    """Whose devices a machine has, by which of these files exist there: /dev/nvidiactl, /dev/kfd."""
    if present.get("/dev/nvidiactl"):
        return "nvidia"
    return "amd" if present.get("/dev/kfd") else ""


def told_to_use_cpu(env: Mapping[str, str], present: Mapping[str, bool]) -> dict[str, str]:
    """Variables to add to a process's environment where it sees no GPU: else accelerate and Hugging Face's
    Trainer ignore RANK and WORLD_SIZE, and each rank trains by itself.

    `present` says which of `DEVICE_FILES` exist there.
    """
    given = {
        variable: names_in(env[variable]) for variable in KINDS if variable != SIMULATED and variable in env
    }
    sees_some = any(given.values()) if given else any(present.values())
    return {} if sees_some else {"ACCELERATE_USE_CPU": "true"}


def names_in(value: str) -> tuple[str, ...]:
    """The devices that a variable's value names: numbers, ranges of them, UUIDs, MIG slices, tiles.

    As the vendors' libraries do, it reads up to the first word that is no name, such as -1 or NoDevFiles.
    """
    found: list[str] = []
    for word in takewhile(lambda word: _RANGE.fullmatch(word) or _NAME.fullmatch(word), _words(value)):
        if between := _RANGE.fullmatch(word):
            first, last = int(between[1]), int(between[2])
            found += [str(n) for n in range(first, min(last, first + MAX_DEVICES) + 1)]
        else:
            found.append(word)
    return tuple(dict.fromkeys(found))[:MAX_DEVICES]


def _words(value: str) -> list[str]:
    return [word.strip() for word in value.split(",")]


def _of_amd(env: Mapping[str, str]) -> PilotDevices:
    outer = names_in(env.get(ROCR, ""))
    if not outer:
        set_ = [variable for variable in (HIP, CUDA) if names_in(env.get(variable, ""))]
        names = names_in(env[set_[0]]) if set_ else ()
        return PilotDevices("rocm" if names else "", _devices(env, names, tuple(set_)))
    inner = names_in(env.get(HIP, "")) or names_in(env.get(CUDA, ""))
    below = inner != outer and all(name.isdecimal() and int(name) < len(outer) for name in inner)
    names = tuple(outer[int(name)] for name in inner) if inner and below else outer
    return PilotDevices("rocm", _devices(env, names, (ROCR,), tuple(own for own in BELOW_ROCR if own in env)))


def _devices(
    env: Mapping[str, str], names: tuple[str, ...], variables: tuple[str, ...], below: tuple[str, ...] = ()
) -> tuple[Device, ...]:
    """Slurm says with which numbers the node has them, in the same order."""
    hints = next((found for hint in HINTS if (found := names_in(env.get(hint, "")))), ())
    hardware = hints if len(hints) == len(names) else names
    return tuple(
        Device(name, variables, below, own if name.isdecimal() else name)
        for name, own in zip(names, hardware, strict=True)
    )


def seen(devices: Sequence[Device]) -> dict[str, str]:
    """Variables by which a process sees these devices alone, numbered in their order."""
    named = ",".join(device.name for device in devices)
    counted = ",".join(str(i) for i in range(len(devices)))
    first = devices[0]
    return dict.fromkeys(first.variables, named) | dict.fromkeys(first.below, counted)
