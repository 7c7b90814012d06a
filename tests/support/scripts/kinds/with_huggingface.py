"""Hugging Face's Trainer, with a small language model."""

import torch
from material import BATCH, folder, pace, ranks_notes, save, unchanged
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

from bftrainer.elastic.huggingface import ElasticCallback

LENGTH, EPOCHS = 96, 60
elastic = ElasticCallback(folder / "checkpoints")
notes, this_run = ranks_notes()


class Tokens(Dataset):
    def __len__(self):
        return LENGTH

    def __getitem__(self, i):
        tokens = (torch.arange(8) * (i + 1) + i) % 32
        return {"input_ids": tokens, "labels": tokens, "i": torch.tensor(i)}


class Noting(Trainer):
    def compute_loss(self, model, inputs, **options):
        notes.line(self.state.global_step, inputs.pop("i").tolist(), self.args.world_size, this_run)
        return super().compute_loss(model, inputs, **options)


class Pace(TrainerCallback):
    def on_step_end(self, args, state, control, **given):
        pace(state.global_step)


args = TrainingArguments(
    output_dir=elastic.output_dir,
    **elastic.batch(BATCH, at_most=8),
    num_train_epochs=EPOCHS,
    optim="sgd",
    learning_rate=0.2,
    lr_scheduler_type="cosine",
    logging_steps=1,
    save_strategy="no",
    disable_tqdm=True,
    remove_unused_columns=False,
    use_cpu=True,
)
torch.manual_seed(0)
sizes = {"vocab_size": 32, "n_positions": 8, "n_embd": 16, "n_layer": 1, "n_head": 2, "bos_token_id": None}
no_dropout = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
model = GPT2LMHeadModel(GPT2Config(**sizes, **no_dropout, eos_token_id=None))
trainer = Noting(model, args, train_dataset=Tokens(), callbacks=[elastic, Pace()])
trainer.train(resume_from_checkpoint=None if unchanged else elastic.checkpoint)
if trainer.is_world_process_zero():
    steps = {"steps": trainer.state.global_step, "epochs": trainer.state.epoch}
    save({"model": model.state_dict(), **steps}, "result.pt")
