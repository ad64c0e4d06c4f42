"""A causal model that drops the attention mask when nothing in it is padded.

Reported: huggingface/transformers#37199
Right: Decide outside the compiled model whether there is padding, or always pass the mask.
Harm: torch.where between a tensor and None, or padded positions that are attended to.
"""

import torch
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self, size=8, heads=2):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(size, size * 3)
        self.out = nn.Linear(size, size)

    def forward(self, x, attention_mask):
        batch, length, size = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        if attention_mask is not None:
            attention_mask = attention_mask[:, None, None, :].bool()
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=attention_mask)
        return self.out(y.transpose(1, 2).reshape(batch, length, size))


class Model(nn.Module):
    def __init__(self, vocab=13, size=8):
        super().__init__()
        self.embed = nn.Embedding(vocab, size)
        self.attn = Attention(size)
        self.lm_head = nn.Linear(size, vocab)

    def _update_causal_mask(self, attention_mask):
        if attention_mask is not None and (attention_mask == 0.0).any():
            return attention_mask
        return None

    def forward(self, input_ids, attention_mask=None):
        mask = self._update_causal_mask(attention_mask)
        return self.lm_head(self.attn(self.embed(input_ids), mask))


torch.manual_seed(0)
model = Model()
step = torch.compile(model, backend="aot_eager")
outputs = []
for padded in (0, 2, 0, 3):
    ids = torch.arange(12).view(2, 6)
    mask = torch.ones(2, 6)
    if padded:
        mask[1, -padded:] = 0
    logits = step(ids, attention_mask=mask)
    logits.logsumexp(-1).mean().backward()
    outputs.append(logits.detach())
result = [outputs, model.embed.weight.grad]
