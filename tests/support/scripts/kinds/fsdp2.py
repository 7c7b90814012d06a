"""A model sharded by FSDP2, saved with torch.distributed.checkpoint."""

import shutil

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from material import BATCH, Points, folder, mse, network, pace, ranks_notes, save, unchanged
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.optim import AdamW

from bftrainer import elastic

EPOCHS, data = 75, Points(96)
job = elastic.attach(folder / "checkpoints")
if dist.is_torchelastic_launched():
    dist.init_process_group("gloo")
else:  # plain python: alone
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
rank, size = dist.get_rank(), dist.get_world_size()
notes, this_run = ranks_notes()

model = network()
mesh = init_device_mesh("cpu", (size,))
for layer in model:
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = AdamW(model.parameters(), lr=0.01)


def state():
    model_state, optimizer_state = get_state_dict(model, optimizer)
    return {"model": model_state, "optimizer": optimizer_state}


step, steps = 0, EPOCHS * len(data) // BATCH
saved = sorted(job.checkpoint_dir.glob("*/.metadata"))  # DCP writes it last: without it, one was cut short
if saved and not unchanged:
    found = state()
    dcp.load(found, checkpoint_id=saved[-1].parent)
    set_state_dict(model, optimizer, model_state_dict=found["model"], optim_state_dict=found["optimizer"])
    step = int(saved[-1].parent.name)

while step < steps:
    epoch, start = divmod(step * BATCH, len(data))
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(epoch)).tolist()
    x, y, i = torch.utils.data.default_collate([data[i] for i in order[start : start + BATCH][rank::size]])
    notes.line(step, i.tolist(), size, this_run)
    loss = mse(model(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    step += 1
    job.progress(step=step, samples=step * BATCH, epoch=epoch, loss=loss.item())
    pace(step)
    stop = job.should_stop()
    if job.should_save():
        dcp.save(state(), checkpoint_id=job.checkpoint_dir / f"{step:08}")
        job.checkpointed()
        if rank == 0:
            for old in sorted(job.checkpoint_dir.glob("*/.metadata"))[:-2]:
                shutil.rmtree(old.parent)
    if stop:
        job.saved(step=step, samples=step * BATCH)
        break
else:
    whole = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if rank == 0:
        save({"model": whole, "steps": step}, "result.pt")
dist.destroy_process_group()
