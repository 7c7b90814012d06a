"""A learning rate that follows the epochs."""

from material import BATCH, EPOCHS, Notes, Points, mse, network, save, unchanged
from torch.optim import SGD
from torch.optim.lr_scheduler import StepLR

from bftrainer import elastic

model = network()
optimizer = SGD(model.parameters(), lr=0.1, momentum=0.9)
scheduler = StepLR(optimizer, step_size=5, gamma=0.8)
given = {} if unchanged else {"scheduler": scheduler, "scheduler_every": "epoch"}

run = elastic.Run(
    model, optimizer, Points(), batch_size=BATCH, epochs=EPOCHS, policy=elastic.FixedGlobal(BATCH), **given
)
if unchanged:
    run.after_epoch(scheduler.step)
notes = Notes()
for x, y, i in run:
    loss = mse(model(x), y)
    notes.uses(run, i)
    run.backward(loss)
    notes.taken(run, run.step(loss=loss.item()))
if run.rank == 0:
    found = {"epochs": scheduler.last_epoch, "lr": optimizer.param_groups[0]["lr"]}
    save({"model": model.state_dict(), "steps": run.position.step, **found}, "result.pt")
