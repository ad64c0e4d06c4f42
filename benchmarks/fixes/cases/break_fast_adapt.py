"""MAML: each task fine-tunes a copy of the network for a few steps before it answers.

Reported: pytorch/pytorch#115122
Right: Keep weights as a dict (functional_call) instead of a copied module, or copy in the caller.
Harm: One task's steps that stay in the network for the next task.
"""

import copy

import torch
from torch import nn
from torch.nn import functional as F


class Learner(nn.Module):
    def __init__(self, features=4, size=12):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(features, size), nn.Tanh())
        self.head = nn.Linear(size, 1)

    def forward(self, x):
        return self.head(self.body(x)).squeeze(-1)


class Meta(nn.Module):
    def __init__(self, update_lr=0.2, update_steps=3):
        super().__init__()
        self.net = Learner()
        self.update_lr, self.update_steps = update_lr, update_steps

    def finetune(self, x_support, y_support, x_query, y_query):
        net = copy.deepcopy(self.net)
        errors = [F.mse_loss(net(x_query), y_query).detach()]
        for _ in range(self.update_steps):
            loss = F.mse_loss(net(x_support), y_support)
            grads = torch.autograd.grad(loss, list(net.parameters()))
            with torch.no_grad():
                for weight, grad in zip(net.parameters(), grads):
                    weight.sub_(self.update_lr * grad)
            errors.append(F.mse_loss(net(x_query), y_query).detach())
        return torch.stack(errors)


torch.manual_seed(0)
meta = Meta()
finetune = torch.compile(meta.finetune, backend="eager")
result = []
for slope in (1.0, -2.0, 1.0):
    x = torch.linspace(-1, 1, 40).reshape(10, 4)
    y = slope * x.sum(-1)
    result.append(finetune(x[::2], y[::2], x[1::2], y[1::2]))
result.append([weight.detach().clone() for weight in meta.net.parameters()])
print([[round(error, 5) for error in errors.tolist()] for errors in result[:3]])
print(round(sum(weight.abs().sum().item() for weight in result[3]), 5))
