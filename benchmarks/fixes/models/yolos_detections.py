"""Detection with YOLOS: a compiled function runs the model and keeps the boxes above a score.

Right: The mask keeps a number of boxes that depends on the scores: keep them in the caller, or
capture dynamic output shapes.
Place: [keep]
Names: keep
"""

import torch
from transformers import YolosConfig, YolosForObjectDetection

config = YolosConfig(
    hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
    image_size=[32, 32], patch_size=8, num_detection_tokens=10, num_labels=3,
)  # fmt: skip


class Detector:
    def __init__(self, threshold):
        self.model = YolosForObjectDetection(config).eval()
        self.threshold = threshold
        self.detect = torch.compile(self._detect, backend="eager")

    def _detect(self, images):
        out = self.model(pixel_values=images)
        scores, labels = out.logits.softmax(-1)[0, :, :-1].max(-1)
        keep = scores > self.threshold
        return out.pred_boxes[0][keep], labels[keep], scores[keep]


torch.manual_seed(0)
detector = Detector(threshold=0.28)
result = []
with torch.no_grad():
    for seed in range(2):
        images = torch.rand(1, 3, 32, 32, generator=torch.Generator().manual_seed(seed))
        result.append(detector.detect(images))
