"""Steps of more samples than a node computes at once."""

from material import BATCH, EPOCHS, Notes, Points, mse, network, save, unchanged
from torch.optim import SGD

from bftrainer import elastic

AT_ONCE = 4
model = network()
optimizer = SGD(model.parameters(), lr=0.05, momentum=0.9)
steps = {"accumulate": BATCH // AT_ONCE} if unchanged else {"policy": elastic.FixedGlobal(BATCH)}

run = elastic.Run(model, optimizer, Points(), batch_size=AT_ONCE, epochs=EPOCHS, **steps)
notes = Notes()
for x, y, i in run:
    loss = mse(model(x), y)
    notes.uses(run, i)
    run.backward(loss)
    notes.taken(run, run.step(loss=loss.item()))
if run.rank == 0:
    save({"model": model.state_dict(), "steps": run.position.step}, "result.pt")
