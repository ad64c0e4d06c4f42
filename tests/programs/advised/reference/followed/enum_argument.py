import enum

import torch


class Phase(enum.Enum):
    WARM = 1
    TRAIN = 2
    COOL = 3


steps = {
    Phase.WARM: torch.compile(lambda x: x * 0.1),
    Phase.TRAIN: torch.compile(lambda x: x * 1.0),
    Phase.COOL: torch.compile(lambda x: x * 0.5),
}
result = [steps[phase](torch.ones(4)) for phase in (Phase.WARM, Phase.TRAIN, Phase.COOL)]
