"""A model that measures its own parts and reads its settings."""

import json
import os
import time

import torch

OPTIONS = '{"scale": 2.0}'
times = []


class Timed(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = torch.nn.Linear(4, 4)
        self.decoder = torch.nn.Linear(4, 4)

    def forward(self, x):
        begin = time.time()
        h = self.encoder(x)
        times.append(time.time() - begin)
        scale = json.loads(OPTIONS)["scale"]
        if os.environ.get("DEBUG_MODEL") == "1":
            breakpoint()
        return self.decoder(h) * scale


torch.manual_seed(0)
model = torch.compile(Timed())
with torch.no_grad():
    result = model(torch.ones(2, 4))
