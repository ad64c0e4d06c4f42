"""A residual network whose blocks print the mean of their activations while it is debugged.

Reported:
docs.pytorch.org/docs/2.12/user_guide/torch_compiler/compile/programming_model.common_graph_breaks.html
Right: Print in the caller, or guard the print with torch.compiler.is_compiling() and say that it is
then silent; each line with its number is kept otherwise.
Harm: Printed lines that are lost without a word, or are reordered.
"""

import torch
from torch import nn


class ResidualBlock(nn.Module):
    def __init__(self, name, size):
        super().__init__()
        self.name = name
        self.fc = nn.Linear(size, size)
        self.norm = nn.LayerNorm(size)

    def forward(self, x):
        y = torch.relu(self.fc(self.norm(x)))
        print(f"{self.name}: mean {y.mean():.3f}, std {y.std():.3f}")
        return x + y


class ResNet(nn.Module):
    def __init__(self, size=8, depth=3):
        super().__init__()
        self.stem = nn.Linear(4, size)
        self.blocks = nn.ModuleList(ResidualBlock(f"block{n}", size) for n in range(depth))
        self.head = nn.Linear(size, 2)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


torch.manual_seed(0)
model = ResNet()
compiled = torch.compile(model, backend="aot_eager")
for step in range(2):
    x = torch.randn(6, 4, generator=torch.Generator().manual_seed(step))
    out = compiled(x)
    out.square().mean().backward()
result = [out.detach(), model.stem.weight.grad]
