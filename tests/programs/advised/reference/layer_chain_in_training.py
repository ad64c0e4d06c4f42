# advised first: requires-grad-variants
import torch
from torch import nn

torch.manual_seed(0)
layers = [nn.Linear(4, 4) for _ in range(3)]


@torch.compile
def layer_forward(x, weight):
    return torch.relu(x @ weight)


x = torch.ones(2, 4)
for layer in layers:
    x = layer_forward(x, layer.weight)
x.sum().backward()
result = [layer.weight.grad for layer in layers]
