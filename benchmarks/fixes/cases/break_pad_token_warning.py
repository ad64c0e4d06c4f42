"""Generation that sets the pad token to the end token and says so with the logger.

Reported: tenstorrent/tt-torch#852
Right: Prepare the special tokens in the caller; a logger that is ignored loses its records.
Harm: The warning is lost without a word, or another pad token.
"""

import logging
import sys

import torch
from torch import nn

logging.basicConfig(format="%(message)s", stream=sys.stdout)
logger = logging.getLogger("generation")


class Generator(nn.Module):
    def __init__(self, vocab=10, eos=2):
        super().__init__()
        self.eos, self.pad = eos, None
        self.embed = nn.Embedding(vocab, 6)
        self.head = nn.Linear(6, vocab)

    def _prepare_special_tokens(self, pad):
        if pad is None:
            logger.warning(f"Setting `pad_token_id` to `eos_token_id`:{self.eos}")
            pad = self.eos
        return pad

    def forward(self, ids, pad=None):
        pad = self._prepare_special_tokens(pad)
        mask = (ids != pad).unsqueeze(-1)
        hidden = (self.embed(ids) * mask).sum(1) / mask.sum(1)
        return self.head(hidden).argmax(-1)


torch.manual_seed(0)
compiled = torch.compile(Generator(), backend="eager")
with torch.no_grad():
    result = [compiled(torch.tensor([[1, 3, 2], [4, 5, 6]]) + step) for step in range(2)]
