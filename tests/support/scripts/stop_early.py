"""A trainer that decides by itself when it is done."""

import torch

from bftrainer import elastic

model = torch.nn.Linear(1, 1)
run = elastic.Run(
    model,
    torch.optim.SGD(model.parameters(), lr=0.1),
    torch.utils.data.TensorDataset(torch.ones(50, 1)),
    batch_size=5,
)
for (x,) in run:
    loss = (model(x) - 3).square().mean()
    model.zero_grad()
    loss.backward()
    run.step(loss=loss.item())
    if loss < 1e-6:
        break
print("good enough")
