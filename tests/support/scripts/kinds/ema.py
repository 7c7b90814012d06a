"""An average of the weights."""

from material import BATCH, EPOCHS, Notes, Points, mse, network, save, unchanged
from torch.optim import SGD
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from bftrainer import elastic

model = network()
optimizer = SGD(model.parameters(), lr=0.05, momentum=0.9)
ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.95))
parts = {} if unchanged else {"ema": ema}

run = elastic.Run(
    model,
    optimizer,
    Points(),
    batch_size=BATCH,
    epochs=EPOCHS,
    policy=elastic.FixedGlobal(BATCH),
    parts=parts,
)
run.after_step(lambda: ema.update_parameters(model))
notes = Notes()
for x, y, i in run:
    loss = mse(model(x), y)
    notes.uses(run, i)
    run.backward(loss)
    notes.taken(run, run.step(loss=loss.item()))
if run.rank == 0:
    save({"model": model.state_dict(), "ema": ema.state_dict(), "steps": run.position.step}, "result.pt")
