"""A text classifier that packs its padded sequences for a GRU.

Reported: pytorch/pytorch#162375
Right: Leave the recurrent part to torch.compiler.disable (its kernel is fused anyway) and compile
the rest; or run the GRU on the padded batch and gather the last valid step.
Harm: States that contain padding.
"""

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence


class Classifier(nn.Module):
    def __init__(self, vocab=20, size=8, hidden=6):
        super().__init__()
        self.embed = nn.Embedding(vocab, size, padding_idx=0)
        self.project = nn.Linear(size, size)
        self.rnn = nn.GRU(size, hidden, batch_first=True)
        self.norm = nn.LayerNorm(hidden)
        self.head = nn.Linear(hidden, 2)

    def encode(self, ids, lengths):
        x = torch.tanh(self.project(self.embed(ids)))
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        _, state = self.rnn(packed)
        return state[-1]

    def forward(self, ids, lengths):
        state = self.encode(ids, lengths)
        return self.head(torch.relu(self.norm(state)))


def batches():
    for seed, lengths in enumerate(([5, 3, 2], [5, 5, 1], [5, 4, 4])):
        ids = torch.randint(1, 20, (3, 5), generator=torch.Generator().manual_seed(seed))
        lengths = torch.tensor(lengths)
        ids[torch.arange(5).expand(3, 5) >= lengths[:, None]] = 0
        yield ids, lengths


torch.manual_seed(0)
model = Classifier()
compiled = torch.compile(model, backend="aot_eager")
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
losses = []
for ids, lengths in batches():
    loss = nn.functional.cross_entropy(compiled(ids, lengths), torch.tensor([0, 1, 0]))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
result = [losses, model.head.weight.grad]
