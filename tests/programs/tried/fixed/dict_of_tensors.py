"""Two inputs in a dictionary share a batch size that varies."""

import sys

import torch

BACKEND = sys.argv[1] if len(sys.argv) > 1 else "inductor"
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Matcher(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.user = torch.nn.Linear(8, 16)
        self.item = torch.nn.Linear(8, 16)

    def forward(self, batch):
        return (self.user(batch["user"]) * self.item(batch["item"])).sum(-1)


torch.manual_seed(1)
matcher = torch.compile(Matcher().to(DEVICE), backend=BACKEND)
with torch.no_grad():
    for size in [32, 24, 16, 7] * 4:
        batch = {name: torch.randn(size, 8, device=DEVICE) for name in ("user", "item")}
        for tensor in batch.values():
            torch._dynamo.maybe_mark_dynamic(tensor, 0)
        scores = matcher(batch)
print("scores", round(scores.max().item(), 4))
