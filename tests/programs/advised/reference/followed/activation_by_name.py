import torch

activations = {
    "relu": torch.compile(lambda x: x.relu()),
    "tanh": torch.compile(lambda x: x.tanh()),
    "sigmoid": torch.compile(lambda x: x.sigmoid()),
}
result = [activations[kind](torch.ones(4)) for kind in ("relu", "tanh", "sigmoid", "relu")]
