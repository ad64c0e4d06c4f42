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
    return loss * 2, loss


result = []
for k in range(5):
    doubled, loss = train_step(torch.ones(4) * k, torch.ones(4))
    meter.update(loss.item())
    result.append(doubled.sum())
result.append([type(value).__name__ for value in meter.history])
