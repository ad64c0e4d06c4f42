"""A DLRM-like recommender with embedding bags and pairwise feature products."""

from __future__ import annotations

import itertools

import torch
from torch import nn

from compileboard.collectors.bench.loaded import Loaded
from compileboard.collectors.bench.suites.builtin.recipe import assemble, click_loss

DENSE, TABLES, ROWS, BAG, WIDTH = 13, 8, 20_000, 10, 64


def perceptron(*widths: int) -> nn.Sequential:
    layers = [
        layer
        for before, after in itertools.pairwise(widths)
        for layer in (nn.Linear(before, after), nn.ReLU())
    ]
    return nn.Sequential(*layers)


class Recommendation(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(ROWS, WIDTH, mode="sum") for _ in range(TABLES))
        self.dense = perceptron(DENSE, 128, WIDTH)
        pairs = (TABLES + 1) * TABLES // 2
        self.click = nn.Sequential(perceptron(WIDTH + pairs, 256, 128), nn.Linear(128, 1))
        self.register_buffer(
            "pairs", torch.triu_indices(TABLES + 1, TABLES + 1, 1), persistent=False
        )

    def forward(self, dense: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """Return one logit per row. Shape: dense (batch, features), ids (tables, batch, bag)."""
        numbers = self.dense(dense)
        bags = [table(bag) for table, bag in zip(self.tables, ids)]
        features = torch.stack((numbers, *bags), dim=1)
        products = torch.bmm(features, features.transpose(1, 2))
        interactions = products[:, self.pairs[0], self.pairs[1]]
        return self.click(torch.cat((numbers, interactions), dim=1)).squeeze(-1)


def build(batch_size: int) -> Loaded:
    def make_inputs(rows: int) -> dict[str, torch.Tensor]:
        return {"dense": torch.rand(rows, DENSE), "ids": torch.randint(ROWS, (TABLES, rows, BAG))}

    sizes = (64, 128, 384, 512)
    return assemble(
        Recommendation, make_inputs, batch_size, batch_size=batch_size, sizes=sizes, loss=click_loss
    )
