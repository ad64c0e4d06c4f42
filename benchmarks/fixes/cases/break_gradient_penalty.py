"""A critic's loss with the gradient penalty of WGAN-GP, compiled as one function.

Reported: pytorch/torchdynamo#943
Right: Leave the penalty to the caller, or torch.func.grad; the penalty keeps its gradient.
Harm: A penalty without a gradient.
"""

import torch
from torch import nn

torch.manual_seed(0)
critic = nn.Sequential(nn.Linear(4, 8), nn.Softplus(), nn.Linear(8, 1))


def gradient_penalty(real, fake):
    mixed = (real * 0.4 + fake * 0.6).requires_grad_()
    score = critic(mixed).sum()
    (grad,) = torch.autograd.grad(score, mixed, create_graph=True)
    return (grad.norm(dim=-1) - 1).square().mean()


@torch.compile(backend="aot_eager")
def critic_loss(real, fake):
    loss = critic(fake).mean() - critic(real).mean()
    return loss + 10 * gradient_penalty(real, fake)


losses = []
for step in range(3):
    generator = torch.Generator().manual_seed(step)
    real, fake = torch.randn(2, 6, 4, generator=generator)
    loss = critic_loss(real, fake)
    loss.backward()
    losses.append(loss.detach())
result = [losses, critic[0].weight.grad]
