"""Lightning's Trainer."""

from lightning.pytorch import LightningModule, Trainer
from material import BATCH, EPOCHS, Points, folder, mse, network, pace, ranks_notes, save, unchanged
from torch.optim import SGD
from torch.optim.lr_scheduler import ExponentialLR
from torch.utils.data import DataLoader

from bftrainer.elastic.lightning import ElasticCallback

elastic = ElasticCallback(batch=BATCH, at_most=8, folder=folder / "checkpoints")
notes, this_run = ranks_notes()


class Network(LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = network()

    def training_step(self, batch, batch_idx):
        x, y, i = batch
        notes.line(self.global_step, i.tolist(), self.trainer.world_size, this_run)
        pace(self.global_step)
        loss = mse(self.layers(x), y)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y, _ = batch
        self.log("val_loss", mse(self.layers(x), y), batch_size=len(x))

    def configure_optimizers(self):
        optimizer = SGD(self.parameters(), lr=0.1, momentum=0.9)
        return [optimizer], [ExponentialLR(optimizer, 0.95)]  # every epoch


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
validation = DataLoader(Points(50, 0.01), batch_size=50)
trainer.fit(
    model,
    elastic.loader(Points()),
    validation,
    ckpt_path=None if unchanged else elastic.checkpoint,
)
if trainer.is_global_zero:
    found = {"steps": trainer.global_step, "epochs": trainer.current_epoch}
    found |= {
        "val_loss": trainer.callback_metrics["val_loss"],
        "lr": trainer.optimizers[0].param_groups[0]["lr"],
    }
    save({"model": model.state_dict(), **found}, "result.pt")
