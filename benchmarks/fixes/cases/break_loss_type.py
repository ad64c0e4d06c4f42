"""A language model that picks its loss by name and warns once where it does not know the name.

Reported: huggingface/transformers#34615
Right: Choose the loss when the model is built, or warn in the caller.
Harm: Another loss, or the warning is lost without a word.
"""

import logging
from functools import lru_cache

import torch
from torch import nn
from torch.nn import functional as F

logging.basicConfig(format="%(message)s")
logger = logging.getLogger("modeling")


@lru_cache(None)
def warning_once(text):
    logger.warning(text)


LOSSES = {"causal": F.cross_entropy}


class Model(nn.Module):
    def __init__(self, loss_type, vocab=9):
        super().__init__()
        self.loss_type = loss_type
        self.embed = nn.Embedding(vocab, 8)
        self.head = nn.Linear(8, vocab)

    @property
    def loss_function(self):
        if self.loss_type not in LOSSES:
            warning_once(f"`loss_type={self.loss_type}` is not known: causal is used")
        return LOSSES.get(self.loss_type, F.cross_entropy)

    def forward(self, ids):
        logits = self.head(torch.relu(self.embed(ids)))
        return self.loss_function(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


torch.manual_seed(0)
model = Model("masked")
compiled = torch.compile(model, backend="aot_eager")
losses = []
for step in range(3):
    loss = compiled((torch.arange(12).view(2, 6) + step) % 9)
    loss.backward()
    losses.append(loss.detach())
result = [losses, model.head.weight.grad]
