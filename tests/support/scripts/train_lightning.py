"""Lightning's Trainer on a small network with random weights: train_lightning.py FOLDER [SECONDS]

It writes notes and, at the end, weights to FOLDER; a step takes SECONDS more.
"""

import framework_notes
import torch
from framework_notes import folder
from lightning.pytorch import LightningModule, Trainer
from torch.utils.data import DataLoader

from bftrainer.elastic.lightning import ElasticCallback

LENGTH, BATCH, EPOCHS = 62, 12, 12  # 2 samples are left out of every epoch
elastic = ElasticCallback(BATCH, at_most=6, folder=folder / "checkpoints")


class Points(torch.utils.data.Dataset):
    """Points in a square, with what is to be learnt of each, and its number."""

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, i: int) -> tuple[torch.Tensor, torch.Tensor, int]:
        x = torch.tensor([i / LENGTH, (i * 7 % LENGTH) / LENGTH])
        return x, x.sin().sum(0, keepdim=True), i


class Network(LightningModule):
    """Notes which samples each rank computes."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.Sequential(torch.nn.Linear(2, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))

    def training_step(self, batch, batch_idx):
        x, y, numbers = batch
        framework_notes.note(self.global_step, numbers.tolist(), self.trainer.world_size)
        framework_notes.pause()
        loss = (self.layers(x) - y).square().mean()
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y, _ = batch
        self.log("val_loss", (self.layers(x) - y).square().mean())

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)
        return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.95)]  # every epoch


model = Network()
trainer = Trainer(
    **elastic.arguments(),
    callbacks=[elastic],
    max_epochs=EPOCHS,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    log_every_n_steps=1,
)
trainer.fit(
    model, elastic.loader(Points()), DataLoader(Points(), batch_size=62), ckpt_path=elastic.checkpoint
)
if trainer.is_global_zero:
    torch.save(model.state_dict(), folder / "weights.pt")
