"""A gradient penalty and an inner step, with the gradients taken in the compiled function."""

import copy

import torch

torch.manual_seed(0)
critic = torch.nn.Linear(4, 1)


@torch.compile
def penalty(x):
    scores = critic(x).sum()
    (gradient,) = torch.autograd.grad(scores, x)
    return (gradient.norm(dim=-1) - 1).pow(2).mean()


@torch.compile
def inner_step(weight, x):
    loss = (x * weight).sum()
    loss.backward()
    return loss.detach()


@torch.compile
def average(weights):
    mean = torch.stack(weights).mean(0)
    snapshot = copy.deepcopy(mean)
    return mean.clamp(max=1.0) + snapshot


weight = torch.ones(4, requires_grad=True)
result = [
    penalty(torch.ones(2, 4, requires_grad=True)).detach(),
    inner_step(weight, torch.arange(4.0)),
    weight.grad,
    average([torch.ones(4), torch.zeros(4)]),
]
