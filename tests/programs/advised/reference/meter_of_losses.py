# advised first: item_in_caller
import torch


class Meter:
    def __init__(self):
        self.history = []

    def update(self, value):
        self.history.append(value)


meter = Meter()


@torch.compile
def train_step(x, w):
    loss = ((x * w).sin() ** 2).mean()
    meter.update(loss.item())
    return loss * 2


result = [train_step(torch.ones(4) * k, torch.ones(4)).sum() for k in range(5)]
result.append([type(value).__name__ for value in meter.history])
