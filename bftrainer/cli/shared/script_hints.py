"""Hints from a script's imports, read on the user's own machine when a spec is submitted."""

from __future__ import annotations

from pathlib import Path

from bftrainer.elastic.programs.preload import imports_of
from bftrainer.files import open_regular
from bftrainer.model.trainer import TrainerSpec
from bftrainer.spec.hints import split, starter

_TRAINERS = {"transformers": "Hugging Face's Trainer", "trl": "Hugging Face's Trainer"}
_LIGHTNING = {"lightning", "lightning.pytorch", "pytorch_lightning"}
_WITHOUT = {
    "Hugging Face's Trainer": (
        "when its number of nodes changes, a step has another number of samples, so that epochs are counted "
        "wrongly and samples left out"
    ),
    "Lightning's Trainer": (
        "when its nodes change, it goes on from what it saves itself, and not at the sample where it was"
    ),
}
READ = 65536
"""So many bytes of a shell script are read."""
MODULE = {"Hugging Face's Trainer": "huggingface", "Lightning's Trainer": "lightning"}


def hint(spec: TrainerSpec) -> str:
    """What its user should know of a script that does not use what bftrainer has for it, alone or beside a
    framework; empty if nothing. A script that cannot be read is the worker's to tell of."""
    if told := _starter_in_shell_script(spec):
        return told
    script = next((word for word in spec.command[1:] if word.endswith(".py")), "")
    path = Path(spec.workdir, script)
    found = imports_of(path) if script else {}
    if any(name.partition(".")[0] == "bftrainer" for name in found) or _names_us(path):
        return ""
    if spec.launcher == "native" and spec.n_max > 1 and found:
        return (
            f"{script} imports nothing of bftrainer.elastic: on several nodes each would train by itself, "
            "and the trainer then fails. Use elastic.Run (docs/library.md), or `launcher: torchrun` for a "
            "script that forms its own group"
        )
    if spec.launcher == "torchrun" and spec.samples is not None and found:
        return (
            f"{script} imports nothing of bftrainer.elastic, and so tells of none of the samples that `work` "
            "asks for: the trainer fails when the script ends. Say `work: until_exit`, or let it call "
            "elastic.attach(), job.progress() and job.done() (docs/torchrun.md)"
        )
    framework = _framework(found)
    if spec.launcher != "torchrun" or spec.n_min == spec.n_max or not framework:
        return ""
    return (
        f"{script} uses {framework} without bftrainer's callback: {_WITHOUT[framework]}. Add "
        f"bftrainer.elastic.{MODULE[framework]}.ElasticCallback (docs/{MODULE[framework]}.md)"
    )


def _begin(script: Path) -> str:
    """The first lines of a script; empty if it cannot be read, which is the worker's to tell of."""
    try:
        with open_regular(script) as file:
            return file.read(READ).decode(errors="replace")
    except OSError:
        return ""


def _names_us(script: Path) -> bool:
    """Whether a script imports something of bftrainer anywhere, such as under an `if`."""
    return "bftrainer.elastic" in _begin(script)


def _starter_in_shell_script(spec: TrainerSpec) -> str:
    """What to say of a shell script that starts processes which know nothing of other nodes' ones."""
    name = next((word for word in spec.command if word.endswith((".sh", ".bash"))), "")
    lines = _begin(Path(spec.workdir, name)).splitlines()
    found = next((program for line in lines if (program := starter(split(line)))), "")
    if not found:
        return ""
    return (
        f"{name} calls {found}, which starts processes of its own, in which bftrainer.elastic does not work; "
        "on several nodes, each would train all by itself, and write the same files. Write `exec python ...` "
        "there, and `launcher: torchrun` in the spec: bftrainer starts it on each node, with RANK, "
        "WORLD_SIZE, MASTER_ADDR and MASTER_PORT set"
    )


def _framework(imports: dict[str, list[str]]) -> str:
    for name, taken in imports.items():
        framework = _TRAINERS.get(name.partition(".")[0], "")
        if framework and any(word.endswith("Trainer") for word in taken):
            return framework
    return "Lightning's Trainer" if _LIGHTNING & imports.keys() else ""
