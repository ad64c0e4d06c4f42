"""Fine-tuning with an evaluation after each epoch: two modes of one model, all batches alike.

Right: problem_type is set by the library in the first call: set it in the config, which saves one
of two recompiles. The other is right: training and evaluation are two graphs.
Place: loss = model(**batch).loss
Names: problem_type
"""

import torch
from transformers import DistilBertConfig, DistilBertForSequenceClassification

config = DistilBertConfig(
    vocab_size=60, dim=16, n_layers=1, n_heads=2, hidden_dim=32, max_position_embeddings=32
)


def make_batches(count, seed):
    generator = torch.Generator().manual_seed(seed)
    return [
        {
            "input_ids": torch.randint(1, 60, (4, 10), generator=generator),
            "labels": torch.randint(0, 2, (4,), generator=generator),
        }
        for _ in range(count)
    ]


def train_epoch(model, optimizer, batches):
    model.train()
    for batch in batches:
        loss = model(**batch).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@torch.no_grad()
def evaluate(model, batches):
    model.eval()
    return sum(model(**batch).loss.item() for batch in batches) / len(batches)


torch.manual_seed(0)
model = torch.compile(DistilBertForSequenceClassification(config), backend="aot_eager")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
result = []
for epoch in range(3):
    train_epoch(model, optimizer, make_batches(3, 0))
    result.append(evaluate(model, make_batches(2, 1)))
