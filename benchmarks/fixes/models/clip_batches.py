"""CLIP that embeds as many images and texts as a request brings.

Right: Mark dimension 0 of input_ids and pixel_values dynamic before the user's call.
Place: model(input_ids=ids, pixel_values=images)
Names: input_ids | pixel_values
"""

import torch
from transformers import CLIPConfig, CLIPModel

config = CLIPConfig(
    text_config={
        "vocab_size": 60, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1,
        "num_attention_heads": 2, "max_position_embeddings": 12,
    },
    vision_config={
        "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1,
        "num_attention_heads": 2, "image_size": 16, "patch_size": 8,
    },
    projection_dim=8,
)  # fmt: skip


@torch.no_grad()
def similarity(model, count):
    images = torch.full((count, 3, 16, 16), 0.1)
    ids = torch.arange(8).repeat(count, 1) + 1
    return model(input_ids=ids, pixel_values=images).logits_per_image


torch.manual_seed(0)
model = torch.compile(CLIPModel(config).eval(), backend="eager")
result = [similarity(model, count) for count in (4, 7, 3, 5)]
