"""A script that only saves once an epoch: it does not attach, and repeats its epoch after a restart.

`saves.py FOLDER EPOCH_S EPOCHS`; FOLDER gets a line for each start: its size, and when.
"""

import json
import os
import sys
import time
from pathlib import Path

folder, epoch_s, epochs = Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
checkpoint = folder / "checkpoint"

if rank == 0:
    with (folder / "starts.jsonl").open("a") as starts:
        starts.write(json.dumps({"size": size, "at": time.time()}) + "\n")
while True:
    done = int(checkpoint.read_text()) if checkpoint.exists() else 0
    if done >= epochs:
        break
    time.sleep(epoch_s)
    if rank == 0:
        unfinished = checkpoint.with_suffix(".new")
        unfinished.write_text(str(done + 1))
        unfinished.rename(checkpoint)
