"""A loop with accelerate that knows nothing of nodes that come and go."""

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed

accelerator = Accelerator(cpu=True)
set_seed(1)
x = torch.randn(240, 5)
data = torch.utils.data.TensorDataset(x, x.prod(1, keepdim=True).tanh())
loader = torch.utils.data.DataLoader(data, batch_size=12, shuffle=True)
model = torch.nn.Linear(5, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=40)
model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
for _ in range(2):
    for a, b in loader:
        loss = ((model(a) - b) ** 2).mean()
        accelerator.backward(loss)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
accelerator.print("loss", loss.item())
