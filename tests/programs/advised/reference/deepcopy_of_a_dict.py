# advised first: deepcopy_in_caller, dict-keys
import copy

import torch


@torch.compile
def step(state, x):
    before = copy.deepcopy(state)
    hidden = torch.tanh(state["h"] + x)
    return {"h": hidden}, (hidden - before["h"]).abs().sum()


state = {"h": torch.zeros(4), "c": torch.ones(4)}
result = []
for _ in range(2):
    state, moved = step(state, torch.ones(4))
    result.append(moved)
