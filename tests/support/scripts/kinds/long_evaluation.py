"""Two long evaluations: after epoch 20 by rank 0 alone, after epoch 40 by all nodes.

The last argument says for how many seconds each goes on: 0 where this runs undisturbed.
"""

import contextlib
import os
import sys
import time

from material import BATCH, EPOCHS, Notes, Points, folder, mse, network, save, unchanged
from torch.optim import SGD

from bftrainer import elastic

SECONDS = float(sys.argv[-1])
SLOW = 10  # samples, of which the first node has all
model = network()
optimizer = SGD(model.parameters(), lr=0.05, momentum=0.9)


class Figures(dict):
    def state_dict(self):
        return dict(self)

    def load_state_dict(self, state):
        self.update(state)


figures = Figures()
run = elastic.Run(
    model,
    optimizer,
    Points(),
    batch_size=BATCH,
    epochs=EPOCHS,
    policy=elastic.FixedGlobal(BATCH),
    parts={"figures": figures},
    timeout_s=(0.2 if unchanged else 0.8) * SECONDS or 120.0,  # unchanged: it is found silent twice
)


def measure(batch):
    x, y, i = batch
    time.sleep(SECONDS * (i < SLOW).sum().item() / SLOW)
    return {"loss": mse(model(x), y).item()}


@run.after_epoch
def look():
    if run.position.epoch == EPOCHS // 3 and run.rank == 0:
        (folder / f"alone.{os.getpid()}").touch()
        with contextlib.nullcontext() if unchanged else run.pause():
            time.sleep(SECONDS)
            save({"epoch": run.position.epoch, "model": model.state_dict()}, "alone.pt")
    if run.position.epoch == 2 * EPOCHS // 3:
        (folder / f"together.{os.getpid()}").touch()
        figures.update(run.evaluate(Points(), measure, batch_size=SLOW))


notes = Notes()
for x, y, i in run:
    loss = mse(model(x), y)
    notes.uses(run, i)
    run.backward(loss)
    notes.taken(run, run.step(loss=loss.item()))
if run.rank == 0:
    save({"model": model.state_dict(), "figures": dict(figures), "steps": run.position.step}, "result.pt")
