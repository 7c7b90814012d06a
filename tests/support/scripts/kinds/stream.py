"""Data that comes as a stream, shuffled in a buffer."""

import random

import numpy as np
from material import BATCH, EPOCHS, LENGTH, Notes, Points, mse, network, save, unchanged
from torch.optim import SGD
from torch.utils.data import DataLoader, IterableDataset

from bftrainer import elastic


class Records(IterableDataset):
    """All points, in another order in each epoch."""

    def __iter__(self):
        points, held = Points(), []
        order = np.random.default_rng() if unchanged else random
        for i in range(LENGTH):
            held.append(points[i])
            order.shuffle(held)
            if len(held) == 20:
                yield held.pop()
        yield from held


model = network()
optimizer = SGD(model.parameters(), lr=0.05, momentum=0.9)
loader = DataLoader(Records(), batch_size=BATCH)

run = elastic.Run(model, optimizer, loader, epochs=EPOCHS, policy=elastic.FixedGlobal(BATCH))
notes = Notes()
for x, y, i in run:
    loss = mse(model(x), y)
    notes.uses(run, i)
    run.backward(loss)
    notes.taken(run, run.step(loss=loss.item()))
if run.rank == 0:
    save({"model": model.state_dict(), "steps": run.position.step}, "result.pt")
