"""A vision transformer of transformers that interpolates its positions for other resolutions.

Right: Mark dimensions 2 and 3 of pixel_values dynamic before the user's call.
Place: out = self.model(
Names: pixel_values
"""

import torch
from transformers import ViTConfig, ViTForImageClassification

config = ViTConfig(
    hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
    image_size=32, patch_size=8, num_labels=3,
)  # fmt: skip


class Service:
    def __init__(self, model):
        self.model = torch.compile(model.eval(), backend="eager")

    def classify(self, image):
        with torch.no_grad():
            out = self.model(pixel_values=image.unsqueeze(0), interpolate_pos_encoding=True)
        return out.logits.squeeze(0)


torch.manual_seed(0)
service = Service(ViTForImageClassification(config))
result = [service.classify(torch.full((3, size, size), 0.5)) for size in (32, 48, 64, 40)]
