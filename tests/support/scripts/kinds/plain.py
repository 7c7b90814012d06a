"""A plain loop."""

from material import BATCH, EPOCHS, Notes, Points, mse, network, save, unchanged
from torch.optim import SGD

from bftrainer import elastic

model = network()
optimizer = SGD(model.parameters(), lr=0.05, momentum=0.9)
policy = None if unchanged else elastic.FixedGlobal(BATCH)

run = elastic.Run(model, optimizer, Points(), batch_size=BATCH, epochs=EPOCHS, policy=policy)
notes = Notes()
for x, y, i in run:
    loss = mse(model(x), y)
    notes.uses(run, i)
    run.backward(loss)
    notes.taken(run, run.step(loss=loss.item()))
if run.rank == 0:
    save({"model": model.state_dict(), "steps": run.position.step}, "result.pt")
