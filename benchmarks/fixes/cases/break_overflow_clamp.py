"""An encoder layer that clamps its output where half precision overflowed, as vLLM and Whisper do.

Reported: pytorch/pytorch#180406
Right: Clamp without asking (nan_to_num, clamp), or torch.where over the whole tensor.
Harm: Values of finite outputs change, or infinities stay.
"""

import torch
from torch import nn


def cast_overflow_tensors(tensors, offset=1000.0):
    if tensors.isinf().any() or tensors.isnan().any():
        clamp_value = torch.finfo(tensors.dtype).max - offset
        tensors = torch.clamp(tensors, min=-clamp_value, max=clamp_value)
    return tensors


class EncoderLayer(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.attn_norm = nn.LayerNorm(size)
        self.fc1 = nn.Linear(size, size * 2)
        self.fc2 = nn.Linear(size * 2, size)

    def forward(self, hidden_states):
        residual = hidden_states
        hidden_states = self.attn_norm(hidden_states)
        hidden_states = torch.relu(self.fc1(hidden_states))
        hidden_states = residual + self.fc2(hidden_states)
        return cast_overflow_tensors(hidden_states)


class Encoder(nn.Module):
    def __init__(self, size=8, depth=2):
        super().__init__()
        self.layers = nn.ModuleList(EncoderLayer(size) for _ in range(depth))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


torch.manual_seed(0)
encoder = torch.compile(Encoder().eval(), backend="eager")
result = []
with torch.no_grad():
    for scale in (1.0, 2.0, float("inf")):
        x = torch.ones(2, 4, 8)
        x[0, 0, 0] = scale
        result.append(encoder(x))
