"""A predictor that takes the text itself and encodes it inside the compiled function.

Reported: pytorch/pytorch#100455
Right: Encode the text in the caller and pass the ids; then mark their length dynamic.
Harm: Another encoding, or one function per text.
"""

import torch
from torch import nn


class CharacterModel(nn.Module):
    def __init__(self, size=8):
        super().__init__()
        self.embed = nn.Embedding(128, size)
        self.fc = nn.Linear(size, size)
        self.head = nn.Linear(size, 3)

    def forward(self, ids):
        return self.head(torch.relu(self.fc(self.embed(ids))).mean(0))


class Predictor:
    def __init__(self, model):
        self.model = model
        self.predict = torch.compile(self._predict, backend="eager")

    def _predict(self, text):
        ids = torch.tensor([ord(c) % 128 for c in text.lower()])
        return self.model(ids).softmax(-1)


torch.manual_seed(0)
predictor = Predictor(CharacterModel())
texts = [
    "This is a note about Frank Sinatra",
    "who was in Saint Genis Pouilly",
    "during summer of 75",
    "He was not recognised",
    "by anybody at all",
]
with torch.no_grad():
    result = [predictor.predict(text) for text in texts]
