"""A model that writes its losses to a process-wide message hub under a lock, as MMEngine does.

Reported: pytorch/pytorch#94795
Right: Return the losses and write them to the hub in the training loop; or leave the hub's call to
torch.compiler.disable.
Harm: A recompile at each call because the hub's dictionary is guarded, or scalars that are lost.
"""

import threading

import torch
from torch import nn


class MessageHub:
    _instance = None
    _lock = threading.RLock()

    def __init__(self):
        self.scalars = {}

    @classmethod
    def get_instance(cls):
        with cls._lock:
            if cls._instance is None:
                cls._instance = cls()
            return cls._instance

    def update_scalar(self, name, value):
        with self._lock:
            self.scalars.setdefault(name, []).append(value.detach())


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))

    def forward(self, real, fake):
        loss_real = -self.net(real).mean()
        loss_fake = self.net(fake).mean()
        hub = MessageHub.get_instance()
        hub.update_scalar("loss_real", loss_real)
        hub.update_scalar("loss_fake", loss_fake)
        return loss_real + loss_fake


torch.manual_seed(0)
critic = Critic()
compiled = torch.compile(critic, backend="aot_eager")
optimizer = torch.optim.RMSprop(critic.parameters(), lr=1e-3)
for step in range(4):
    generator = torch.Generator().manual_seed(step)
    real, fake = torch.randn(2, 8, 4, generator=generator)
    loss = compiled(real, fake)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
result = [MessageHub.get_instance().scalars, critic.net[0].weight.grad]
