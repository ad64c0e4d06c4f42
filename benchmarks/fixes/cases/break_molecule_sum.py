"""Energies of molecules in one flat batch: counts and sums per molecule with bincount.

Reported: isayevlab/aimnetcentral#109
Right: Pass the number of molecules in and use index_add or scatter; or capture what the message
names.
Harm: Energies of other molecules.
"""

import torch
from torch import nn


class AtomicNet(nn.Module):
    def __init__(self, species=5, size=8):
        super().__init__()
        self.embed = nn.Embedding(species, size)
        self.net = nn.Sequential(nn.Linear(size, size), nn.SiLU(), nn.Linear(size, 1))

    def forward(self, numbers):
        return self.net(self.embed(numbers)).squeeze(-1)


class Energy(nn.Module):
    def __init__(self):
        super().__init__()
        self.atomic = AtomicNet()
        self.shift = nn.Parameter(torch.zeros(()))

    def forward(self, numbers, molecule):
        energies = self.atomic(numbers)
        atoms = torch.bincount(molecule)
        total = torch.zeros(atoms.shape[0]).index_add(0, molecule, energies)
        return total / atoms + self.shift


torch.manual_seed(0)
model = Energy()
compiled = torch.compile(model, backend="aot_eager")
outputs = []
for sizes in ([3, 2, 4], [5, 1, 3], [2, 2, 5]):
    molecule = torch.arange(3).repeat_interleave(torch.tensor(sizes))
    energy = compiled(torch.arange(9) % 5, molecule)
    energy.sum().backward()
    outputs.append(energy.detach())
result = [outputs, model.atomic.net[0].weight.grad]
