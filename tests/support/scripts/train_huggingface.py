"""Hugging Face's Trainer on a small language model with random weights: train_huggingface.py FOLDER [SECONDS]

It writes notes and, at the end, weights to FOLDER; a step takes SECONDS more.
"""

import framework_notes
import torch
from framework_notes import folder
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

from bftrainer.elastic.huggingface import ElasticCallback

LENGTH, BATCH, EPOCHS = 60, 12, 12
elastic = ElasticCallback(folder / "checkpoints")


class Tokens(torch.utils.data.Dataset):
    """Sequences that follow from their number."""

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, i: int) -> dict[str, torch.Tensor]:
        tokens = (torch.arange(8) * (i + 1) + i) % 32
        return {"input_ids": tokens, "labels": tokens, "i": torch.tensor(i)}


class Noting(Trainer):
    """Notes which samples each rank computes."""

    def compute_loss(self, model, inputs, **options):
        framework_notes.note(self.state.global_step, inputs.pop("i").tolist(), self.args.world_size)
        return super().compute_loss(model, inputs, **options)


class Slow(TrainerCallback):
    """Gives a test the time to disturb."""

    def on_step_end(self, args, state, control, **given):
        framework_notes.pause()


args = TrainingArguments(
    output_dir=elastic.output_dir,
    **elastic.batch(BATCH, at_most=6),
    num_train_epochs=EPOCHS,
    optim="sgd",
    learning_rate=0.5,
    lr_scheduler_type="cosine",
    logging_steps=1,
    save_strategy="no",
    disable_tqdm=True,
    remove_unused_columns=False,
    use_cpu=True,
)
torch.manual_seed(0)
config = GPT2Config(
    vocab_size=32,
    n_positions=8,
    n_embd=16,
    n_layer=1,
    n_head=2,
    resid_pdrop=0.0,
    embd_pdrop=0.0,
    attn_pdrop=0.0,
    bos_token_id=None,
    eos_token_id=None,
)
model = GPT2LMHeadModel(config)
trainer = Noting(model, args, train_dataset=Tokens(), callbacks=[elastic, Slow()])
trainer.train(resume_from_checkpoint=elastic.checkpoint)
if trainer.is_world_process_zero():
    torch.save(model.state_dict(), folder / "weights.pt")
