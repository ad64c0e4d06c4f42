import torch
from torch import nn

torch.manual_seed(0)
model = torch.compile(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2)))
data = torch.randn(37, 6)
result = []
with torch.no_grad():
    for batch in data.split(12):
        padded = nn.functional.pad(batch, (0, 0, 0, 12 - len(batch)))
        result.append(model(padded)[: len(batch)])
