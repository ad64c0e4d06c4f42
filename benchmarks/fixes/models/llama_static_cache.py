"""Generating with a static cache, which transformers compiles itself where it is told to.

Right: Nothing to fix: prefill and decode are two graphs, compiled once each.
Place: none
"""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

config = LlamaConfig(
    vocab_size=60, hidden_size=16, intermediate_size=32, num_hidden_layers=1,
    num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=64,
    pad_token_id=0, bos_token_id=1, eos_token_id=None,
)  # fmt: skip


class Chat:
    def __init__(self, model):
        self.model = model.eval()
        self.model.forward = torch.compile(self.model.forward, backend="eager")

    def reply(self, prompt):
        ids = torch.tensor([prompt])
        out = self.model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=5, do_sample=False,
            cache_implementation="static", max_length=None, disable_compile=True,
        )  # fmt: skip
        return out[0, len(prompt) :].tolist()


torch.manual_seed(0)
chat = Chat(LlamaForCausalLM(config))
result = [chat.reply(list(range(3, 3 + length))) for length in (8, 8, 8)]
