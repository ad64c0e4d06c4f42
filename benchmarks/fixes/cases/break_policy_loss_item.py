"""A policy whose compiled forward returns its losses as Python floats for the logger.

Reported: open-edge-platform/physical-ai-studio#877
Right: Return the detached loss tensors and read the numbers in the training loop, or capture scalar
outputs; the logged history stays a list of floats.
Harm: The loss that is trained is detached, or the history holds tensors.
"""

import torch
from torch import nn
from torch.nn import functional as F


class Policy(nn.Module):
    def __init__(self, state_size=6, action_size=3, hidden=16):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(state_size, hidden), nn.ReLU())
        self.head = nn.Linear(hidden, action_size)
        self.value = nn.Linear(hidden, 1)

    def compute_loss(self, batch):
        features = self.encoder(batch["state"])
        action_loss = F.mse_loss(self.head(features), batch["action"])
        value_loss = F.mse_loss(self.value(features).squeeze(-1), batch["return"])
        loss = action_loss + 0.5 * value_loss
        loss_dict = {"action_loss": action_loss.item(), "value_loss": value_loss.item()}
        return loss, loss_dict

    def forward(self, batch):
        return self.compute_loss(batch)


def make_batch(step):
    generator = torch.Generator().manual_seed(step)
    return {
        "state": torch.randn(8, 6, generator=generator),
        "action": torch.randn(8, 3, generator=generator),
        "return": torch.randn(8, generator=generator),
    }


def train(policy, steps=4):
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-2)
    history = []
    for step in range(steps):
        loss, loss_dict = policy(make_batch(step))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append({"loss": loss.item(), **loss_dict})
    print(f"final action loss {history[-1]['action_loss']:.3f}")
    return history


torch.manual_seed(0)
model = Policy()
history = train(torch.compile(model, backend="aot_eager"))
result = [history, [p.grad for p in model.parameters()]]
