"""As seat.py, but written for Elastic Horovod."""

import sys
import time
from pathlib import Path

import horovod.torch as hvd
import torch
from seated import note

from bftrainer import elastic

job = elastic.attach()
hvd.init()
model = torch.nn.Linear(1, 1)
state = hvd.elastic.TorchState(model=model, step=0)


@hvd.elastic.run
def train(state: hvd.elastic.TorchState) -> None:
    membership = hvd.broadcast_object(int(time.time()), 0)
    while not job.stopping:
        hvd.allreduce(torch.ones(1), name="one")
        state.step += 1
        note(Path(sys.argv[1]), membership, hvd.rank(), hvd.size(), (hvd.local_rank(), hvd.local_size()))
        job.progress(step=state.step, samples=state.step)
        state.commit()
        time.sleep(0.02)


train(state)
