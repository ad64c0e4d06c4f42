"""A sampler that passes its noise levels as floats to a compiled step.

Reported: pytorch/pytorch#149405
Right: Pass sigma and its successor as tensors: both vary.
Harm: One noise level for all steps.
"""

import math

import torch
from torch import nn


class Denoiser(nn.Module):
    def __init__(self, size=6):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(size + 1, 16), nn.SiLU(), nn.Linear(16, size))

    def forward(self, x, c_noise):
        return self.net(torch.cat([x, x.new_full((x.shape[0], 1), c_noise)], dim=1))


def karras_sigmas(count, low=0.1, high=10.0, rho=7.0):
    ramp = [n / (count - 1) for n in range(count)]
    a, b = high ** (1 / rho), low ** (1 / rho)
    return [(a + r * (b - a)) ** rho for r in ramp] + [0.0]


class Sampler:
    def __init__(self, model):
        self.model = model
        self.step = torch.compile(self._step, backend="eager", dynamic=True)

    def _step(self, x, sigma, sigma_next):
        c_in = 1 / math.sqrt(sigma**2 + 1)
        denoised = x - sigma * self.model(x * c_in, sigma / 4)
        d = (x - denoised) / sigma
        return x + d * (sigma_next - sigma)

    @torch.no_grad()
    def sample(self, x, count):
        sigmas = karras_sigmas(count)
        for sigma, sigma_next in zip(sigmas, sigmas[1:]):
            x = self.step(x, sigma, sigma_next)
        return x


torch.manual_seed(0)
sampler = Sampler(Denoiser())
result = sampler.sample(torch.randn(3, 6, generator=torch.Generator().manual_seed(0)) * 10, 7)
