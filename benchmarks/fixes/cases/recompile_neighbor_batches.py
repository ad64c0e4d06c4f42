"""A graph network on sampled neighbourhoods: nodes and edges vary from batch to batch.

Reported: pytorch/pytorch#94640
Right: Mark the number of nodes and the number of edges dynamic: both vary.
Harm: Edges or nodes that are padded without a mask.
"""

import torch
from torch import nn


class Convolution(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.own, self.others = nn.Linear(inputs, outputs), nn.Linear(inputs, outputs)

    def forward(self, x, edges):
        source, target = edges
        gathered = torch.zeros_like(x).index_add(0, target, x[source])
        return self.own(x) + self.others(gathered)


class Network(nn.Module):
    def __init__(self, size=5):
        super().__init__()
        self.first, self.second = Convolution(size, size), Convolution(size, 2)

    def forward(self, x, edges):
        return self.second(torch.relu(self.first(x, edges)), edges)


def sample(seed):
    generator = torch.Generator().manual_seed(seed)
    nodes, count = 6 + 2 * seed, 9 + 5 * seed
    edges = torch.randint(0, nodes, (2, count), generator=generator)
    return torch.randn(nodes, 5, generator=generator), edges


torch.manual_seed(0)
network = Network()
compiled = torch.compile(network, backend="aot_eager")
optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
result = []
for seed in range(4):
    x, edges = sample(seed)
    loss = compiled(x, edges).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    result.append(loss.item())
