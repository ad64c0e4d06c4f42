import torch


@torch.compile
def sum_logs(t):
    return t.log().sum()


def normalise(t):
    assert (t > 0).all(), f"smallest is {t.min().item():.2f}"
    return sum_logs(t)


result = [normalise(torch.ones(4))]
try:
    normalise(torch.tensor([1.0, -2.0, 3.0, 1.0]))
except AssertionError as error:
    result.append(str(error))
