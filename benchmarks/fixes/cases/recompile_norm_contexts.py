"""An RMS norm that is called with and without gradients, for batches and for single rows.

Reported: pytorch/pytorch#144068
Right: Several things vary (grad mode, requires_grad, rows): all are named, and which of them save
how many; one row and many are two graphs.
Harm: Detaching an input that is trained.
"""

import torch


@torch.compile(backend="aot_eager")
def rmsnorm_without_weight(hidden_states, eps=1e-6):
    variance = hidden_states.to(torch.float32).pow(2).mean(-1, keepdim=True)
    return hidden_states * torch.rsqrt(variance + eps)


def train_on(hidden):
    out = rmsnorm_without_weight(hidden)
    out.sum().backward()
    return out.detach()


def evaluate_on(hidden):
    with torch.no_grad():
        return rmsnorm_without_weight(hidden)


def main():
    outputs, grads = [], []
    base = torch.randn(6, 1, 8, generator=torch.Generator().manual_seed(0))
    for trained in (False, True):
        hidden = base.clone().requires_grad_(trained)
        outputs.append(evaluate_on(hidden))
        if trained:
            outputs.append(train_on(hidden))
            grads.append(hidden.grad)
        else:
            outputs.append(rmsnorm_without_weight(hidden))
        last = base[-1:].clone().requires_grad_(trained)
        outputs.append(rmsnorm_without_weight(last).detach())
        outputs.append(evaluate_on(last))
    return outputs, grads


result = main()
