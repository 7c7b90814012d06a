"""A small Lightning training with bftrainer's callback."""

import torch
from lightning.pytorch import LightningModule, Trainer

from bftrainer.elastic.lightning import ElasticCallback

elastic = ElasticCallback(batch=12)
torch.manual_seed(0)
x = torch.randn(48, 5)
data = torch.utils.data.TensorDataset(x, x.prod(1, keepdim=True).tanh())


class Network(LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))

    def training_step(self, batch, batch_idx):
        loss = ((self.layers(batch[0]) - batch[1]) ** 2).mean()
        self.log("loss", loss, sync_dist=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)


trainer = Trainer(
    **elastic.arguments(),
    callbacks=[elastic],
    max_epochs=8,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    log_every_n_steps=1,
)
trainer.fit(Network(), elastic.loader(data), ckpt_path=elastic.checkpoint)
