"""A scheduler step that defines its output class where it is used.

Reported: pytorch/pytorch#128942
Right: Define the class at module level.
Harm: Another type of output, or fields that are gone.
"""

import torch


class EulerScheduler:
    def __init__(self, num_steps):
        self.sigmas = torch.linspace(1.0, 0.0, num_steps + 1)

    def step(self, model_output, sample, index):
        class Output:
            def __init__(self, prev_sample, pred_original):
                self.prev_sample = prev_sample
                self.pred_original = pred_original

        sigma, next_sigma = self.sigmas[index], self.sigmas[index + 1]
        pred_original = sample - sigma * model_output
        derivative = (sample - pred_original) / sigma
        return Output(sample + derivative * (next_sigma - sigma), pred_original)


def denoise(model, scheduler, sample, num_steps):
    for index in range(num_steps):
        output = scheduler.step(model(sample), sample, index)
        sample = output.prev_sample
    return sample, output.pred_original


torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.SiLU(), torch.nn.Linear(16, 4))
compiled = torch.compile(denoise, backend="eager")
with torch.no_grad():
    result = [
        compiled(model, EulerScheduler(3), torch.randn(2, 4, generator=torch.Generator()), 3)
        for _ in range(2)
    ]
