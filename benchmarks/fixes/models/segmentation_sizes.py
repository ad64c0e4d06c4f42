"""Segmentation with torchvision's LR-ASPP on photographs of several sizes.

Right: Mark dimensions 2 and 3 of the image dynamic before the user's call.
Place: return self.net(photograph
Names: x | input
"""

import torch
import torchvision


class Segmenter:
    def __init__(self):
        net = torchvision.models.segmentation.lraspp_mobilenet_v3_large(
            weights=None, weights_backbone=None, num_classes=3
        )
        self.net = torch.compile(net.eval(), backend="eager")

    @torch.no_grad()
    def __call__(self, photograph):
        return self.net(photograph.unsqueeze(0))["out"].argmax(1)


torch.manual_seed(0)
segment = Segmenter()
result = []
for height, width in ((64, 64), (96, 64), (96, 128), (80, 112)):
    result.append(segment(torch.linspace(-1, 1, 3 * height * width).view(3, height, width)).shape)
