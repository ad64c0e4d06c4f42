"""Training torchvision's RetinaNet on images whose numbers of boxes differ.

Right: The breaks are in the library's matching of boxes: at the user's call, compile the backbone
and head alone, or leave the losses to torch.compiler.disable.
Place: losses = compiled(images, targets)
Names: backbone | disable
"""

import torch
import torchvision


class Scenes:
    def __init__(self, boxes_per_image):
        self.boxes_per_image = boxes_per_image

    def __iter__(self):
        for seed, count in enumerate(self.boxes_per_image):
            generator = torch.Generator().manual_seed(seed)
            corner = torch.rand(count, 2, generator=generator) * 30
            boxes = torch.cat([corner, corner + 16], dim=1)
            target = {"boxes": boxes, "labels": torch.ones(count, dtype=torch.long)}
            yield [torch.rand(3, 64, 64, generator=generator)], [target]


def build():
    backbone = torchvision.models.detection.backbone_utils.mobilenet_backbone(
        backbone_name="mobilenet_v3_small", weights=None, fpn=True, trainable_layers=6
    )
    return torchvision.models.detection.RetinaNet(
        backbone,
        num_classes=3,
        min_size=64,
        max_size=64,
        anchor_generator=torchvision.models.detection.anchor_utils.AnchorGenerator(
            ((16,), (32,), (64,)), ((1.0,),) * 3
        ),
    )


torch.manual_seed(0)
model = build()
compiled = torch.compile(model, backend="aot_eager")
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
result = []
for images, targets in Scenes([2, 3]):
    losses = compiled(images, targets)
    loss = sum(losses.values())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    result.append(loss.item())
