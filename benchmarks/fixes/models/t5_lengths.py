"""Training T5 on pairs of texts, inputs and targets of varying lengths.

Right: Mark dimension 1 of input_ids and labels dynamic before the user's call.
Place: loss = compiled(input_ids=input_ids, labels=labels).loss
Names: input_ids | labels
"""

import torch
from transformers import T5Config, T5ForConditionalGeneration

config = T5Config(
    vocab_size=60, d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2, decoder_start_token_id=0
)


class Collator:
    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)

    def __call__(self, source, target):
        ids = torch.randint(2, 60, (3, source), generator=self.generator)
        labels = torch.randint(2, 60, (3, target), generator=self.generator)
        return ids, labels


torch.manual_seed(0)
model = T5ForConditionalGeneration(config)
compiled = torch.compile(model, backend="aot_eager")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
collate = Collator(0)
result = []
for source, target in ((10, 6), (14, 6), (12, 9), (18, 7)):
    input_ids, labels = collate(source, target)
    loss = compiled(input_ids=input_ids, labels=labels).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    result.append(loss.item())
