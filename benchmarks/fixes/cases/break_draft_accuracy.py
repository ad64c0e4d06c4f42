"""Speculative-decoding training that measures the draft's accuracy at each unrolled step.

Reported: sgl-project/SpecForge#222
Right: Keep the accuracies as tensors until the caller prints them, or capture scalar outputs.
Harm: Other accuracies, or gradients that are cut.
"""

import torch
from torch import nn
from torch.nn import functional as F


class DraftModel(nn.Module):
    def __init__(self, vocab=11, hidden=8, length=3):
        super().__init__()
        self.length = length
        self.embed = nn.Embedding(vocab, hidden)
        self.mix = nn.Linear(hidden, hidden)
        self.lm_head = nn.Linear(hidden, vocab)

    def _compute_metric_acc(self, logits, targets, loss_mask):
        correct = (logits.argmax(-1) == targets) * loss_mask
        return correct.sum().item() / (loss_mask.sum().item() + 1e-6)

    def forward(self, input_ids, loss_mask):
        hidden = self.embed(input_ids)
        losses, accuracies = [], []
        for _ in range(self.length):
            hidden = torch.tanh(self.mix(hidden))
            logits = self.lm_head(hidden)
            targets = torch.roll(input_ids, -1, dims=1)
            log_p = F.log_softmax(logits, dim=-1).gather(-1, targets.unsqueeze(-1)).squeeze(-1)
            losses.append(-(log_p * loss_mask).sum() / loss_mask.sum())
            accuracies.append(self._compute_metric_acc(logits, targets, loss_mask))
        return losses, accuracies


def main():
    torch.manual_seed(0)
    model = DraftModel()
    compiled = torch.compile(model, backend="aot_eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    logged = []
    for step in range(3):
        ids = torch.randint(0, 11, (4, 7), generator=torch.Generator().manual_seed(step))
        mask = torch.ones(4, 7)
        mask[:, -1] = 0
        losses, accuracies = compiled(ids, mask)
        optimizer.zero_grad()
        sum(losses).backward()
        optimizer.step()
        logged.append([round(float(a), 4) for a in accuracies])
    return model, logged


model, logged = main()
result = [logged, model.lm_head.weight.grad, model.embed.weight.grad]
