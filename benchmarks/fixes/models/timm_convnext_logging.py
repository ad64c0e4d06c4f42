"""A training step of one's own around a timm ConvNeXt that logs accuracy as floats.

Right: Return the accuracy as a tensor and read the number in the loop, or capture scalar outputs.
Place: self.history.append(accuracy.item())
Names: item | accuracy
"""

import timm
import torch
from torch.nn import functional as F


class Module(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = timm.create_model("convnext_atto", pretrained=False, num_classes=4)
        self.history = []

    def training_step(self, images, targets):
        logits = self.net(images)
        loss = F.cross_entropy(logits, targets)
        accuracy = (logits.argmax(-1) == targets).float().mean()
        self.history.append(accuracy.item())
        return loss


torch.manual_seed(0)
module = Module()
training_step = torch.compile(module.training_step, backend="aot_eager")
optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3)
for step in range(3):
    images = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(step))
    loss = training_step(images, torch.arange(4))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
result = module.history
