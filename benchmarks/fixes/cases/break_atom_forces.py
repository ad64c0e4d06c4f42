"""An interatomic potential that asks for the gradient of its positions and returns forces.

Reported: facebookresearch/fairchem#2126
Right: Call requires_grad_ on the positions before the compiled call (and differentiate outside it).
Harm: Zero or missing forces, or forces of positions that were detached.
"""

import torch
from torch import nn


class Potential(nn.Module):
    def __init__(self, kinds=3, size=10):
        super().__init__()
        self.kind = nn.Embedding(kinds, size)
        self.register_buffer("centers", torch.linspace(0.5, 4.0, size))
        self.energy = nn.Sequential(nn.Linear(size, size), nn.SiLU(), nn.Linear(size, 1))

    def forward(self, data):
        positions = data["positions"]
        if not positions.requires_grad:
            positions.requires_grad_(True)
        kinds = self.kind(data["kinds"])
        offset = positions.unsqueeze(1) - positions.unsqueeze(0)
        distance = torch.sqrt((offset**2).sum(-1) + 1e-6)
        basis = torch.exp(-((distance.unsqueeze(-1) - self.centers) ** 2))
        atoms = (basis * kinds.unsqueeze(0)).sum(1) * kinds
        energy = self.energy(atoms).sum()
        (gradient,) = torch.autograd.grad(energy, positions)
        return {"energy": energy.detach(), "forces": -gradient}


class Relaxation:
    def __init__(self, model, step_size=0.05):
        self.model = torch.compile(model, backend="eager")
        self.step_size = step_size

    def run(self, positions, kinds, steps):
        energies = []
        for _ in range(steps):
            output = self.model({"positions": positions, "kinds": kinds})
            energies.append(output["energy"].item())
            positions = positions.detach() + self.step_size * output["forces"]
        return positions, output["forces"], energies


torch.manual_seed(0)
relaxation = Relaxation(Potential())
kinds = torch.tensor([0, 1, 2, 1, 0])
positions, forces, energies = relaxation.run(torch.randn(5, 3) * 1.5, kinds, steps=4)
result = [positions, forces, energies]
print([round(e, 5) for e in energies], round(forces.abs().sum().item(), 5))
print(round(positions.abs().sum().item(), 5))
