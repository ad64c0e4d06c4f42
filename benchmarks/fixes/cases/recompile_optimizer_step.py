"""A hand-written Adam whose compiled update counts its steps in the state.

Reported: Koratahiu/Advanced_Optimizers#6
Right: Make the step count a tensor, so that the bias correction is computed in the graph.
Harm: A bias correction that is frozen.
"""

import torch
from torch import nn


class Adam(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-2, betas=(0.9, 0.99), eps=1e-8):
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps})
        self._compiled = torch.compile(self._step_parameter, backend="eager")

    def _step_parameter(self, p, grad, state, group):
        beta1, beta2 = group["betas"]
        state["step"] += 1
        state["exp_avg"].lerp_(grad, 1 - beta1)
        state["exp_avg_sq"].mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        correction1 = 1 - beta1 ** state["step"]
        correction2 = 1 - beta2 ** state["step"]
        denominator = (state["exp_avg_sq"] / correction2).sqrt() + group["eps"]
        p.sub_(group["lr"] / correction1 * state["exp_avg"] / denominator)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state.update(
                        step=0, exp_avg=torch.zeros_like(p), exp_avg_sq=torch.zeros_like(p)
                    )
                self._compiled(p, p.grad, state, group)


torch.manual_seed(0)
model = nn.Linear(4, 4, bias=False)
optimizer = Adam(model.parameters())
for step in range(7):
    optimizer.zero_grad()
    (model(torch.ones(2, 4)) - 1).square().mean().backward()
    optimizer.step()
result = [model.weight.detach().clone(), optimizer.state[model.weight]["exp_avg"]]
