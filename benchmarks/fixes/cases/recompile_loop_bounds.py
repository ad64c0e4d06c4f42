"""A likelihood summed over a window whose bounds move, with a Python loop between them.

Reported: pytorch/pytorch#114293
Right: Sum over a slice (or a mask) instead of the loop, which is unrolled for each pair of bounds.
Harm: A window of another length.
"""

import torch


class Hawkes:
    def __init__(self, decay=0.5):
        self.decay = decay
        self.accumulate = torch.compile(self._accumulate, backend="eager")

    def _accumulate(self, times, start, end):
        total = torch.zeros(())
        for i in range(start + 1, end):
            total = total + torch.exp(-self.decay * (times[i] - times[start]))
        return total

    def intensities(self, times, width):
        values = []
        for start in range(len(times) - 2):
            end = min(start + width, len(times))
            values.append(self.accumulate(times, start, end))
        return torch.stack(values)


def simulate(count, seed):
    gaps = torch.rand(count, generator=torch.Generator().manual_seed(seed))
    return gaps.cumsum(0)


model = Hawkes()
result = [model.intensities(simulate(9, seed), width) for seed, width in ((0, 4), (1, 5))]
print([round(float(r.sum()), 4) for r in result])
