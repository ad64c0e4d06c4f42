"""Message passing that takes the number of nodes from the largest index, as torch_scatter does.

Reported: rusty1s/pytorch_scatter#457
Right: Pass the number of nodes (x.shape[0] is known), or capture scalar outputs.
Harm: A node less, or wrong sums.
"""

import torch
from torch import nn


def scatter_sum(src, index, dim_size=None):
    if dim_size is None:
        dim_size = int(index.max()) + 1
    out = src.new_zeros(dim_size, src.shape[-1])
    return out.index_add(0, index, src)


class Convolution(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.message = nn.Linear(2 * inputs, outputs)

    def forward(self, x, edges):
        source, target = edges
        messages = self.message(torch.cat([x[source], x[target]], -1))
        return scatter_sum(messages, target)


class GraphNet(nn.Module):
    def __init__(self, size=4, hidden=6):
        super().__init__()
        self.conv1, self.conv2 = Convolution(size, hidden), Convolution(hidden, hidden)
        self.head = nn.Linear(hidden, 3)

    def forward(self, x, edges):
        h = torch.relu(self.conv1(x, edges))
        return self.head(self.conv2(h, edges))


torch.manual_seed(0)
model = GraphNet()
compiled = torch.compile(model, backend="aot_eager")
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
losses = []
for step in range(3):
    generator = torch.Generator().manual_seed(step)
    ring = torch.arange(6)
    edges = torch.stack([torch.randperm(6, generator=generator), ring])
    out = compiled(torch.randn(6, 4, generator=generator), edges)
    loss = nn.functional.cross_entropy(out, ring % 3)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
result = [losses, model.head.weight.grad]
