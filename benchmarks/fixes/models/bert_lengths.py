"""Fine-tuning BERT on texts whose batches are padded to their longest.

Right: Mark dimension 1 of input_ids and attention_mask dynamic before the user's call, or pad to
one length.
Place: loss = model(**batch).loss
Names: input_ids | attention_mask
"""

import torch
from transformers import BertConfig, BertForSequenceClassification

config = BertConfig(
    vocab_size=60, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
    intermediate_size=32, max_position_embeddings=64,
)  # fmt: skip


def make_batch(length, seed):
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(1, 60, (4, length), generator=generator)
    return {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "labels": torch.arange(4) % 2,
    }


def train(model, steps):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for step, length in enumerate(steps):
        batch = make_batch(length, step)
        loss = model(**batch).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


torch.manual_seed(0)
model = torch.compile(BertForSequenceClassification(config), backend="aot_eager")
result = train(model, [12, 20, 16, 24])
