"""Generating with Llama, its forward compiled, with the cache that generate makes by default.

Right: The cache grows: a static cache (or its length marked dynamic) at the user's call of
generate; prefill and decode are two graphs in any case.
Place: return model.generate(
Names: cache | past_key_values | attention_mask | position_ids
"""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

config = LlamaConfig(
    vocab_size=60, hidden_size=16, intermediate_size=32, num_hidden_layers=2,
    num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=64,
    pad_token_id=0, bos_token_id=1, eos_token_id=None,
)  # fmt: skip


def answer(model, prompt):
    mask = torch.ones_like(prompt)
    return model.generate(prompt, attention_mask=mask, max_new_tokens=6, do_sample=False)


torch.manual_seed(0)
model = LlamaForCausalLM(config).eval()
model.forward = torch.compile(model.forward, backend="eager")
result = [answer(model, torch.arange(2, 2 + length).view(1, -1)) for length in (7, 7, 9)]
