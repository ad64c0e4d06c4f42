# advised first: check_in_caller
import torch


@torch.compile
def normalise(t):
    assert (t > 0).all(), f"smallest is {t.min().item():.2f}"
    return t.log().sum()


result = [normalise(torch.ones(4))]
try:
    normalise(torch.tensor([1.0, -2.0, 3.0, 1.0]))
except AssertionError as error:
    result.append(str(error))
