"""Two networks that play against each other, with an optimiser each."""

import torch
from material import BATCH, EPOCHS, Notes, Points, network, save, unchanged
from torch.optim import Adam

from bftrainer import elastic

generator, critic = network(1), network(2)
g_optimizer = Adam(generator.parameters(), lr=0.002, betas=(0.5, 0.9))
d_optimizer = Adam(critic.parameters(), lr=0.002, betas=(0.5, 0.9))
g_steps = {"G": g_optimizer} if unchanged else {"G": g_optimizer, "D": d_optimizer}


def fake(x):
    return torch.cat([x[:, :1], generator(x)], 1)


def d_loss(x, y):
    real = critic(torch.cat([x[:, :1], y], 1))
    return (real - 1).square().mean() + critic(fake(x).detach()).square().mean()


def g_loss(x):
    return (critic(fake(x)) - 1).square().mean()


run = elastic.Run(
    {"G": generator, "D": critic},
    g_steps,
    Points(),
    batch_size=BATCH,
    epochs=EPOCHS,
    policy=elastic.FixedGlobal(BATCH),
)
notes = Notes()
for x, y, i in run:
    notes.uses(run, i)
    if unchanged:
        d_optimizer.zero_grad()
        d_loss(x, y).backward()
        d_optimizer.step()
    else:
        run.backward(d_loss(x, y), "D")
        run.step("D")
    loss = g_loss(x)
    run.backward(loss, "G")
    notes.taken(run, run.step("G", loss=loss.item()))
if run.rank == 0:
    steps = {name: int(o.state_dict()["state"][0]["step"]) for name, o in g_steps.items()}
    models = {"G": generator.state_dict(), "D": critic.state_dict()}
    save({"models": models, "optimizers": steps, "steps": run.position.step}, "result.pt")
