"""As seat.py, but written for torchrun."""

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from seated import note

from bftrainer import elastic

job = elastic.attach()
dist.init_process_group("gloo")
membership = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
place = (int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"]))
step = 0
while not job.should_stop():
    dist.all_reduce(torch.ones(1))
    step += 1
    job.progress(step=step, samples=step)
    note(Path(sys.argv[1]), membership, dist.get_rank(), dist.get_world_size(), place)
    time.sleep(0.02)
