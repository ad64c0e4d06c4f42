"""A speech decoder that keeps a list of its alignments and looks at the last one.

Reported: pytorch/torchdynamo#330
Right: Pass the last alignment in and return the new one; keep the list in the caller.
Harm: Alignments that are lost.
"""

import torch
from torch import nn


class Decoder(nn.Module):
    def __init__(self, size=6):
        super().__init__()
        self.query = nn.Linear(size, size)
        self.location = nn.Linear(1, size)
        self.out = nn.Linear(size, size)
        self.alignments = []

    def decode(self, frame, memory):
        energies = torch.tanh(self.query(frame).unsqueeze(1) + memory)
        if len(self.alignments) > 0:
            energies = energies + self.location(self.alignments[-1].unsqueeze(-1))
        alignment = energies.sum(-1).softmax(-1)
        self.alignments.append(alignment)
        return self.out((alignment.unsqueeze(1) @ memory).squeeze(1))


class Synthesizer:
    def __init__(self, decoder):
        self.decoder = decoder
        self.step = torch.compile(decoder.decode, backend="eager")

    @torch.no_grad()
    def infer(self, memory, count):
        frame, frames = torch.zeros(memory.shape[0], memory.shape[-1]), []
        for _ in range(count):
            frame = self.step(frame, memory)
            frames.append(frame)
        return torch.stack(frames, 1)


torch.manual_seed(0)
synthesizer = Synthesizer(Decoder())
memory = torch.randn(2, 5, 6, generator=torch.Generator().manual_seed(0))
frames = synthesizer.infer(memory, 7)
result = [frames, torch.stack(synthesizer.decoder.alignments)]
