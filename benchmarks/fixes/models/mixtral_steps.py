"""Training Mixtral, a mixture of experts, on packed sequences of one length.

Right: Mark dimension 1 of input_ids and labels dynamic before the user's call.
Place: loss = compiled(input_ids=ids, labels=ids).loss
Names: input_ids | labels
"""

import torch
from transformers import MixtralConfig, MixtralForCausalLM

config = MixtralConfig(
    vocab_size=60, hidden_size=16, intermediate_size=32, num_hidden_layers=2,
    num_attention_heads=2, num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=2,
    max_position_embeddings=64,
)  # fmt: skip

torch.manual_seed(0)
model = MixtralForCausalLM(config)
compiled = torch.compile(model, backend="aot_eager")
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
result = []
for step, length in enumerate((16, 16, 12, 20)):
    ids = torch.randint(0, 60, (2, length), generator=torch.Generator().manual_seed(step))
    loss = compiled(input_ids=ids, labels=ids).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    result.append(loss.item())
