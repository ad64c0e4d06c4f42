"""Position ids of a vision-language model, computed from where image tokens are.

Reported: pytorch/pytorch#173915
Right: Compute the position ids in the caller, before the compiled model.
Harm: Other positions.
"""

import torch
from torch import nn

VISION_START, IMAGE = 3, 4


def get_rope_index(input_ids, image_grid):
    positions = torch.zeros(2, *input_ids.shape, dtype=torch.long)
    image_index = 0
    for row, ids in enumerate(input_ids):
        tokens = ids.tolist()
        start, base = 0, 0
        parts = []
        while VISION_START in tokens[start:]:
            at = tokens.index(VISION_START, start) + 1
            text = torch.arange(at - start).expand(2, -1) + base
            h, w = image_grid[image_index].tolist()
            grid = torch.stack([torch.arange(h).repeat_interleave(w), torch.arange(w).repeat(h)])
            base = int(text.max()) + 1
            parts += [text, grid + base]
            base = base + max(h, w)
            start = at + h * w
            image_index += 1
        parts.append(torch.arange(len(tokens) - start).expand(2, -1) + base)
        positions[:, row] = torch.cat(parts, dim=1)
    return positions


class VisionLanguage(nn.Module):
    def __init__(self, vocab=12, size=8):
        super().__init__()
        self.embed = nn.Embedding(vocab, size)
        self.rows, self.columns = nn.Embedding(32, size), nn.Embedding(32, size)
        self.head = nn.Linear(size, vocab)

    def forward(self, input_ids, image_grid):
        h, w = get_rope_index(input_ids, image_grid)
        return self.head(torch.relu(self.embed(input_ids) + self.rows(h) + self.columns(w)))


torch.manual_seed(0)
model = torch.compile(VisionLanguage().eval(), backend="eager")
ids = torch.tensor([[5, 3, 4, 4, 4, 4, 6, 7], [3, 4, 4, 4, 4, 8, 9, 10]])
with torch.no_grad():
    result = [model(ids, torch.tensor([[2, 2], [2, 2]])) for _ in range(2)]
