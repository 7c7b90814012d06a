"""Ends when a validation has not become better for some epochs, and keeps the best weights."""

import copy
import sys

from material import BATCH, EPOCHS, Notes, Points, mse, network, save, unchanged
from torch.optim import SGD

from bftrainer import elastic

at_once = "at_once" in sys.argv  # saves within the hook
PATIENCE, BETTER = 8, 0.99


class Best:
    def __init__(self):
        self.loss, self.epoch, self.waited, self.looks = float("inf"), 0, 0, 0
        self.weights = {}

    def state_dict(self):
        return dict(vars(self))

    def load_state_dict(self, state):
        vars(self).update(copy.deepcopy(state))


model, best = network(), Best()
optimizer = SGD(model.parameters(), lr=0.05, momentum=0.9)
parts = {} if unchanged else {"best": best}
run = elastic.Run(
    model,
    optimizer,
    Points(),
    batch_size=BATCH,
    epochs=5 * EPOCHS,
    policy=elastic.FixedGlobal(BATCH),
    parts=parts,
)


@run.after_epoch
def look():
    loss = run.evaluate(Points(50, 0.01), lambda batch: {"loss": mse(model(batch[0]), batch[1])})["loss"]
    best.waited, best.looks = best.waited + 1, best.looks + 1
    if loss < BETTER * best.loss:
        best.loss, best.epoch, best.waited = loss, run.position.epoch, 0
        best.weights = copy.deepcopy(model.state_dict())
        if at_once and run.rank == 0:
            save(best.weights, "best.pt", epoch=best.epoch)
    if best.waited == PATIENCE:
        run.stop()


notes = Notes()
for x, y, i in run:
    loss = mse(model(x), y)
    notes.uses(run, i)
    run.backward(loss)
    notes.taken(run, run.step(loss=loss.item()))
if run.rank == 0:
    if not at_once:
        save(best.weights, "best.pt")
    save({"best": best.state_dict(), "steps": run.position.step, "epochs": run.position.epoch}, "result.pt")
