"""A mixture of experts that splits the routed tokens by the count of each expert.

Reported: PrimeIntellect-ai/prime-rl#996
Right: Capture scalar outputs, run the expert loop under torch.compiler.disable, or use a grouped
matrix product; a plain rewrite into masks computes every expert on every token.
Harm: Tokens that go to the wrong expert, or a crash in the backward pass.
"""

import torch
from torch import nn
from torch.nn import functional as F


class Experts(nn.Module):
    def __init__(self, dim=8, hidden=12, num_experts=4):
        super().__init__()
        self.w1 = nn.Parameter(torch.randn(num_experts, dim, hidden) * 0.1)
        self.w2 = nn.Parameter(torch.randn(num_experts, hidden, dim) * 0.1)

    def forward(self, x, num_tokens_per_expert):
        num_tokens_per_expert = num_tokens_per_expert.tolist()
        splits = torch.split(x, num_tokens_per_expert, dim=0)
        outs = []
        for index, tokens in enumerate(splits):
            h = F.silu(tokens @ self.w1[index])
            outs.append(h @ self.w2[index])
        return torch.cat(outs, dim=0)


class MoE(nn.Module):
    def __init__(self, dim=8, num_experts=4):
        super().__init__()
        self.num_experts = num_experts
        self.router = nn.Linear(dim, num_experts, bias=False)
        self.experts = Experts(dim, num_experts=num_experts)

    def forward(self, x):
        scores = self.router(x).softmax(-1)
        top_score, top_expert = scores.max(-1)
        order = top_expert.argsort(stable=True)
        counts = F.one_hot(top_expert, self.num_experts).sum(0)
        routed = self.experts(x[order], counts) * top_score[order].unsqueeze(-1)
        return x + torch.zeros_like(x).index_add(0, order, routed)


torch.manual_seed(0)
model = MoE()
compiled = torch.compile(model, backend="aot_eager")
outputs = []
for step in range(3):
    x = torch.randn(16, 8, generator=torch.Generator().manual_seed(step))
    out = compiled(x)
    out.square().mean().backward()
    outputs.append(out.detach())
result = [outputs, model.experts.w1.grad]
