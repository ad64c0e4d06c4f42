"""A diffusion model whose forward makes a seeded generator for its noise.

Reported: pytorch/pytorch#88576
Right: Make the noise (or the generator) in the caller and pass the noise in.
Harm: Noise that no longer follows the seed.
"""

import torch
from torch import nn
from torch.nn import functional as F


class Denoiser(nn.Module):
    def __init__(self, size=6):
        super().__init__()
        self.time = nn.Embedding(10, size)
        self.net = nn.Sequential(nn.Linear(size, 16), nn.SiLU(), nn.Linear(16, size))

    def forward(self, x, t):
        return self.net(x + self.time(t))


class Diffusion(nn.Module):
    def __init__(self, model, steps=10):
        super().__init__()
        self.model = model
        self.register_buffer("alphas", torch.linspace(0.99, 0.1, steps))

    def forward(self, x, t, seed):
        generator = torch.Generator(device=x.device).manual_seed(seed)
        noise = torch.randn(x.shape, generator=generator)
        alpha = self.alphas[t].unsqueeze(-1)
        noisy = alpha.sqrt() * x + (1 - alpha).sqrt() * noise
        return F.mse_loss(self.model(noisy, t), noise)


torch.manual_seed(0)
diffusion = Diffusion(Denoiser())
compiled = torch.compile(diffusion, backend="aot_eager")
optimizer = torch.optim.AdamW(diffusion.parameters(), lr=1e-3)
losses = []
for step in range(3):
    loss = compiled(torch.ones(4, 6), torch.tensor([0, 3, 6, 9]), 42)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
result = [losses, diffusion.model.net[0].weight.grad]
