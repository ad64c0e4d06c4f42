# advised first: value-variants
import enum

import torch


class Phase(enum.Enum):
    WARM = 1
    TRAIN = 2
    COOL = 3


@torch.compile
def step(x, phase):
    if phase is Phase.WARM:
        return x * 0.1
    if phase is Phase.TRAIN:
        return x * 1.0
    return x * 0.5


result = [step(torch.ones(4), phase) for phase in (Phase.WARM, Phase.TRAIN, Phase.COOL)]
