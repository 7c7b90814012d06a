"""What is allowed in a spec and seldom meant, in words for its user. Pure."""

from __future__ import annotations

from pathlib import PurePath

from bftrainer.model.trainer import TrainerSpec

STARTERS = {"accelerate", "deepspeed", "horovodrun", "mpiexec", "mpirun", "srun", "torchrun"}
"""Programs that start processes of their own."""
MODULES = {"torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch"}


def hint(spec: TrainerSpec) -> str:
    """What a user should think of, once the trainer is submitted; empty if nothing."""
    starter = _starter(spec.command)
    if starter is None:
        return ""
    return (
        f"its command starts processes of its own ({starter}), in which bftrainer.elastic does not work. "
        "Better let the command be the script itself, with `launcher: torchrun`: bftrainer starts it on each "
        "node, with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set"
    )


def _starter(command: tuple[str, ...]) -> str | None:
    program = PurePath(command[0]).name if command else ""
    if program in STARTERS:
        return program
    module = command[2] if len(command) > 2 and command[1] == "-m" else ""
    return module if module in MODULES else None
