"""What a user is told of a spec that is right and may not do what was meant."""

from __future__ import annotations

import pytest

from bftrainer.model.trainer import TrainerSpec
from bftrainer.spec.hints import hint


@pytest.mark.parametrize(
    ("command", "named"),
    [
        (("accelerate", "launch", "train.py"), "accelerate"),
        (("/opt/venv/bin/torchrun", "--nproc-per-node", "2", "train.py"), "torchrun"),
        (("python", "-m", "torch.distributed.run", "train.py"), "torch.distributed.run"),
        (("env", "A=1", "torchrun", "train.py"), "torchrun"),
        (("nice", "-n", "5", "accelerate", "launch", "train.py"), "accelerate"),
        (("bash", "-c", "cd here; exec torchrun train.py"), "torchrun"),
        (("bash", "-c", "ulimit -n 9999;torchrun train.py"), "torchrun"),
        (("bash", "-c", "torchrun 'train.py"), "torchrun"),
        (("env", "A=1", "python", "train.py", "torchrun"), ""),
        (("python", "-m", "train", "srun"), ""),
        (("bash", "-c", "exec python train.py --with torchrun"), ""),
        (("python", "train.py"), ""),
        (("python", "-m", "train"), ""),
        (("python",), ""),
        (("bash", "-c", "exec python train.py"), ""),
        (("bash", "train.sh"), ""),
    ],
)
def test_a_command_that_starts_processes_of_its_own_is_told_of(command: tuple[str, ...], named: str) -> None:
    found = hint(TrainerSpec(name="t", command=command, n_min=1, n_max=1))
    assert (f"({named})" in found and "launcher: torchrun" in found) if named else found == ""


@pytest.mark.parametrize(
    "command", [("bash", "-c", "python train.py; echo finished"), ("/bin/sh", "-e", "-c", "python train.py")]
)
def test_a_shell_that_stays_between_agent_and_script_is_told_of(command: tuple[str, ...]) -> None:
    found = hint(TrainerSpec(name="t", command=command, n_min=1, n_max=1))
    assert "`exec python train.py`" in found and "exit code" in found
