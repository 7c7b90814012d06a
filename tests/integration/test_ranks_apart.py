"""Scripts of a torchrun trainer on two nodes without GPUs: they train together, or the trainer fails."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.site import running_at_will

pytestmark = pytest.mark.timeout(300)

ACCELERATE = """
import sys
import torch
from accelerate import Accelerator

accelerator = Accelerator()
torch.manual_seed(0)
data = torch.utils.data.TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = torch.utils.data.DataLoader(data, batch_size=4)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
steps = 0
for x, y in loader:
    accelerator.backward(((model(x) - y) ** 2).mean())
    optimizer.step()
    optimizer.zero_grad()
    steps += 1
rank = accelerator.process_index
open(f"{sys.argv[1]}.{rank}", "w").write(f"{rank} of {accelerator.num_processes}: {steps} steps")
"""
PLAIN = """
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(10):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
"""
ATTACHED = PLAIN.replace(
    "import torch", "import torch\nfrom bftrainer import elastic\njob = elastic.attach()"
)
ATTACHED += "    job.progress(step=1, samples=8)\n"
LATE = """
import torch.distributed as dist
from bftrainer import elastic

job = elastic.attach()
dist.init_process_group("gloo")
job.progress(step=1, samples=8)
job.done(step=1, samples=8)
dist.barrier()
if job.rank == 1:
    raise ValueError("no plot can be drawn")
"""
LOOP = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(1, 41):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
"""
GROUP = LOOP + "dist.barrier()  # rank 0 compares at its end, when the other one has told its weights\n"
GROUP_ATTACHED = f"""
from bftrainer import elastic
job = elastic.attach()
{LOOP}
    job.progress(step=step, samples=8 * step)
dist.barrier()
job.done(step=step, samples=8 * step)
"""
COMPARED = GROUP_ATTACHED.replace("    job.progress", "    job.compare(model)\n    job.progress")
EACH_ALL = ACCELERATE.replace(
    "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)",
    "model, optimizer = accelerator.prepare(model, optimizer)",
)


def test_processes_train_together_or_the_trainer_fails(tmp_path: Path) -> None:
    scripts = {"plain": PLAIN, "attached": ATTACHED, "late": LATE}
    scripts |= {"group": GROUP, "group attached": GROUP_ATTACHED, "compared": COMPARED}
    if find_spec("accelerate") is not None:
        scripts |= {"bare": ACCELERATE, "each all": EACH_ALL}
    with running_at_will("a", "b", t_fwd_s=60) as site:
        site.change(give=("a", "b"))
        ended = {}
        for name, text in scripts.items():
            script = tmp_path / f"{name}.py"
            script.write_text(text)
            called = name.replace(" ", "-")
            site.submit(called, str(script), str(tmp_path / name), n_min=2, n_max=2, launcher="torchrun")
            ended[name] = site.until_ended(called)
    assert ended["plain"]["status"] == "failed"
    assert "its 2 processes never formed a group" in ended["plain"]["reason"]
    assert ended["attached"]["status"] == "failed"
    assert "torch.distributed counts 1" in ended["attached"]["reason"]
    assert ended["late"]["status"] == "failed"
    assert "after its loop, its script failed on " in ended["late"]["reason"]
    assert "ValueError: no plot can be drawn" in ended["late"]["reason"]
    assert ended["compared"]["reason"].startswith("the ranks do not have the same weights any more"), (
        "what is refused ends the trainer at once"
    )
    for name in ("group", "group attached"):
        assert ended[name]["status"] == "completed", ended[name]["reason"]
        (warned,) = ended[name]["warned"]
        assert warned.startswith("the ranks do not train one model: parameter "), ended[name]
    assert ended["group attached"]["samples"] == 320
    if "bare" in scripts:
        (warned,) = ended["each all"]["warned"]
        assert warned.startswith("each of the 2 ranks reads all training data by itself"), ended["each all"]
        assert "give the loader to accelerator.prepare" in warned
        assert ended["bare"]["warned"] == []
        assert ended["bare"]["status"] == "completed", ended["bare"]["reason"]
        for rank in (0, 1):
            assert Path(f"{tmp_path}/bare.{rank}").read_text() == f"{rank} of 2: 8 steps"
