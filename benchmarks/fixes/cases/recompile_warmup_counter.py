"""A loss whose weight is warmed up by a counter that the module keeps.

Reported: pytorch/pytorch#128319
Right: Keep the counter as a tensor buffer, or compute the weight in the caller and pass it as a
tensor.
Harm: A warm-up that stops at the traced value.
"""

import torch
from torch import nn


class VAE(nn.Module):
    def __init__(self, size=6, latent=2, warmup=10):
        super().__init__()
        self.encoder = nn.Linear(size, 2 * latent)
        self.decoder = nn.Linear(latent, size)
        self.warmup = warmup
        self.iteration = 0

    def forward(self, x, noise):
        mean, log_var = self.encoder(x).chunk(2, -1)
        z = mean + noise * torch.exp(0.5 * log_var)
        reconstruction = (self.decoder(z) - x).square().sum(-1).mean()
        kl = -0.5 * (1 + log_var - mean.square() - log_var.exp()).sum(-1).mean()
        self.iteration += 1
        beta = min(1.0, self.iteration / self.warmup)
        return reconstruction + beta * kl


torch.manual_seed(0)
vae = VAE()
compiled = torch.compile(vae, backend="aot_eager")
optimizer = torch.optim.Adam(vae.parameters(), lr=1e-2)
losses = []
for step in range(12):
    generator = torch.Generator().manual_seed(step)
    x, noise = torch.randn(5, 6, generator=generator), torch.randn(5, 2, generator=generator)
    loss = compiled(x, noise)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
result = [losses, vae.iteration, vae.encoder.weight.grad]
