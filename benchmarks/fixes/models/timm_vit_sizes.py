"""timm's ViT with dynamic_img_size on images of several sizes.

Right: Mark dimensions 2 and 3 of the images dynamic before the user's call.
Place: return model(images)
Names: x | images
"""

import timm
import torch

torch.manual_seed(0)
vit = timm.create_model(
    "vit_tiny_patch16_224", pretrained=False, num_classes=4, depth=1, dynamic_img_size=True
).eval()
model = torch.compile(vit, backend="eager")


def embed(images):
    with torch.no_grad():
        return model(images)


result = []
for size in (64, 96, 80, 128):
    result.append(embed(torch.full((2, 3, size, size), 0.3)))
