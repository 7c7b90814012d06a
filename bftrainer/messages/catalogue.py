"""All messages by id."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType, ModuleType

from bftrainer.messages import (
    arguments,
    ends,
    hints,
    huggingface,
    lightning,
    loop,
    partial,
    ranks,
    specs,
    state,
    trying,
)
from bftrainer.messages.commands import daemon, lines, reaching, running, troubles
from bftrainer.messages.diagnostic import Diagnostic
from bftrainer.messages.files import logs, places, plans, replays, settings, studies, tables

SECTIONS: Mapping[str, ModuleType] = MappingProxyType(
    {
        "The loop of elastic.Run": loop,
        "What is given to elastic.Run": arguments,
        "The state that nodes share": state,
        "Partial back-propagation, and turns on a device": partial,
        "Scripts on torchrun and Horovod": ranks,
        "Hugging Face's Trainer": huggingface,
        "Lightning's Trainer": lightning,
        "Trainers that fail, or seem to come to nothing": ends,
        "Specs, as they are submitted": hints,
        "Specs that are refused": specs,
        "Studies that are refused": studies,
        "Settings that are refused": settings,
        "What bftrainer try finds": trying,
        "Commands that get no answer": reaching,
        "What the daemon refuses": daemon,
        "Why a daemon does not start, or go on": running,
        "What status calls degraded": troubles,
        "What the command line refuses": lines,
        "Files that cannot be read or written": places,
        "Logs that are refused": logs,
        "Tables and values that are refused": tables,
        "Workloads and records that are refused": replays,
        "Plans that are refused": plans,
    }
)
"""Title of a section of the page -> the module with its messages, in the order of their numbers."""


def messages_of(module: ModuleType) -> list[Diagnostic]:
    """The messages of a module, in the order of its lines."""
    return [found for found in vars(module).values() if isinstance(found, Diagnostic)]


CATALOGUE: Mapping[str, Diagnostic] = MappingProxyType(
    {each.id: each for module in SECTIONS.values() for each in messages_of(module)}
)
"""Id -> message."""
