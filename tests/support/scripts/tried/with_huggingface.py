"""A small training by Hugging Face's Trainer with bftrainer's callback."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from bftrainer.elastic.huggingface import ElasticCallback

elastic = ElasticCallback()


class Tokens(torch.utils.data.Dataset):
    def __len__(self):
        return 48

    def __getitem__(self, i):
        tokens = (torch.arange(8) * (i + 1) + i) % 32
        return {"input_ids": tokens, "labels": tokens}


args = TrainingArguments(
    output_dir=elastic.output_dir,
    **elastic.batch(12, at_most=4),
    num_train_epochs=8,
    optim="sgd",
    learning_rate=0.2,
    logging_steps=1,
    save_strategy="no",
    disable_tqdm=True,
    use_cpu=True,
)
torch.manual_seed(0)
sizes = {"vocab_size": 32, "n_positions": 8, "n_embd": 16, "n_layer": 1, "n_head": 2, "bos_token_id": None}
model = GPT2LMHeadModel(
    GPT2Config(**sizes, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, eos_token_id=None)
)
trainer = Trainer(model, args, train_dataset=Tokens(), callbacks=[elastic])
trainer.train(resume_from_checkpoint=elastic.checkpoint)
