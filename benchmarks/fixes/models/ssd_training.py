"""Training torchvision's SSDLite, whose losses depend on the boxes of each image.

Right: The breaks are in the library's matching of boxes: at the user's call, compile the backbone
and head alone, or leave the losses to torch.compiler.disable.
Place: losses_by_name = model(images, targets)
Names: backbone | disable
"""

import torch
import torchvision


def make_batch(step):
    generator = torch.Generator().manual_seed(step)
    images = [torch.rand(3, 64, 64, generator=generator) for _ in range(2)]
    targets = []
    for _ in images:
        corner = torch.rand(step + 1, 2, generator=generator) * 30
        boxes = torch.cat([corner, corner + 20], dim=1)
        targets.append({"boxes": boxes, "labels": torch.ones(step + 1, dtype=torch.long)})
    return images, targets


def train(model, steps):
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    losses = []
    for step in range(steps):
        images, targets = make_batch(step)
        losses_by_name = model(images, targets)
        loss = sum(losses_by_name.values())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


torch.manual_seed(0)
ssd = torchvision.models.detection.ssdlite320_mobilenet_v3_large(
    weights=None, weights_backbone=None, num_classes=3
)
result = train(torch.compile(ssd, backend="aot_eager"), 2)
