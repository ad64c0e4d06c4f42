"""A server that embeds with a timm MobileNet as many images as have come in.

Right: Mark dimension 0 of the batch dynamic before the user's call.
Place: return self.net(batch)
Names: x | batch
"""

import timm
import torch


class Embedder:
    def __init__(self):
        net = timm.create_model("mobilenetv3_small_050", pretrained=False, num_classes=0)
        self.net = torch.compile(net.eval(), backend="eager")
        self.served = 0

    def embed(self, images):
        batch = torch.stack(images)
        self.served += len(images)
        with torch.inference_mode():
            return self.net(batch)


torch.manual_seed(0)
embedder = Embedder()
result = []
for count in (5, 2, 7, 3):
    images = [torch.full((3, 32, 32), n / 10) for n in range(count)]
    result.append(embedder.embed(images).mean(-1))
