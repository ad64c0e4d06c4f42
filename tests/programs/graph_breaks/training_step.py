"""A training step that logs its loss and clips gradients by a measured norm."""

import torch
import torch.nn.functional as F

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 2))
history = []


@torch.compile
def train_step(inputs, targets):
    logits = model(inputs)
    loss = F.cross_entropy(logits, targets)
    history.append(loss.item())
    accuracy = (logits.argmax(-1) == targets).float().mean().item()
    scaled = loss / accuracy
    return loss, scaled


losses = []
for _ in range(3):
    loss, scaled = train_step(torch.randn(4, 8), torch.tensor([0, 1, 0, 1]))
    losses.append(loss.detach())
result = losses
