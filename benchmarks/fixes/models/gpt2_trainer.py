"""Trainer with torch_compile on GPT-2; the last batch of the data is smaller.

Right: The library warns in each compile that loss_type is not set: set it in the config. Then the
last batch: dataloader_drop_last=True.
Place: outcome = trainer.train()
Names: loss_type
"""

import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

config = GPT2Config(vocab_size=60, n_positions=32, n_embd=16, n_layer=1, n_head=2)


class Texts(torch.utils.data.Dataset):
    def __init__(self, count=11, length=12):
        self.ids = torch.randint(0, 60, (count, length), generator=torch.Generator().manual_seed(0))

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, index):
        return {"input_ids": self.ids[index], "labels": self.ids[index]}


torch.manual_seed(0)
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        output_dir=folder, per_device_train_batch_size=4, num_train_epochs=2, use_cpu=True,
        report_to=[], save_strategy="no", disable_tqdm=True, logging_strategy="no",
        torch_compile=True, torch_compile_backend="eager",
    )  # fmt: skip
    trainer = Trainer(model=GPT2LMHeadModel(config), args=arguments, train_dataset=Texts())
    outcome = trainer.train()
result = outcome.training_loss
