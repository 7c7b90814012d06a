"""A trainer with state of every kind that PyTorch knows, and a NumPy number in its scheduler."""

import numpy as np
import torch

from bftrainer import elastic

model = torch.nn.Linear(1, 1, dtype=torch.float64)
model.register_buffer("counts", torch.ones(3, dtype=torch.int16))
model.register_buffer("truth", torch.tensor(True))
model.register_buffer("nothing", torch.empty(0))
model.register_buffer("coarse", torch.ones(2, dtype=torch.bfloat16))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5 * (1 + np.cos(step / 1000)))
data = torch.utils.data.TensorDataset(torch.ones(100, 1, dtype=torch.float64))
run = elastic.Run(model, optimizer, data, batch_size=10, scheduler=scheduler)
for (x,) in run:
    loss = (model(x) - 3).square().mean()
    optimizer.zero_grad()
    loss.backward()
    run.step(loss=float("nan"))
