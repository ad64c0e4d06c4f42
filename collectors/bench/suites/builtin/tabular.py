"""Models of rows and of graphs."""

from __future__ import annotations

import itertools

import torch
from torch import nn

from compileboard.collectors.bench.loaded import Inputs
from compileboard.collectors.bench.suites.builtin.parts import (
    Recipe,
    class_loss,
    click_loss,
)

# A residual multilayer perceptron.
MLP_FEATURES, MLP_WIDTH, MLP_DEPTH, MLP_CLASSES = 128, 384, 4, 16


class ResidualBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.widen, self.narrow = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.narrow(nn.functional.gelu(self.widen(self.norm(x))))


class MLP(nn.Sequential):
    def __init__(self) -> None:
        blocks = (ResidualBlock(MLP_WIDTH) for _ in range(MLP_DEPTH))
        super().__init__(
            nn.Linear(MLP_FEATURES, MLP_WIDTH),
            *blocks,
            nn.LayerNorm(MLP_WIDTH),
            nn.Linear(MLP_WIDTH, MLP_CLASSES),
        )


mlp = Recipe(
    MLP,
    lambda _batch_size, rows: (torch.randn(rows, MLP_FEATURES),),
    (16, 48, 96, 128),
    loss=class_loss,
)


# A DLRM-like recommender with embedding bags and pairwise feature products.
DENSE, TABLES, TABLE_ROWS, BAG_SIZE, TABLE_WIDTH = 13, 8, 20_000, 10, 64


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
        self.tables = nn.ModuleList(
            nn.EmbeddingBag(TABLE_ROWS, TABLE_WIDTH, mode="sum") for _ in range(TABLES)
        )
        self.dense = perceptron(DENSE, 128, TABLE_WIDTH)
        pairs = (TABLES + 1) * TABLES // 2
        self.click = nn.Sequential(perceptron(TABLE_WIDTH + pairs, 256, 128), nn.Linear(128, 1))
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


def clicks(_batch_size: int, rows: int) -> Inputs:
    return {
        "dense": torch.rand(rows, DENSE),
        "ids": torch.randint(TABLE_ROWS, (TABLES, rows, BAG_SIZE)),
    }


recommendation = Recipe(Recommendation, clicks, (64, 128, 384, 512), loss=click_loss)


# A graph network: messages along edges, gathered and scattered by index.
NODE_FEATURES, EDGE_FEATURES, GRAPH_WIDTH, GRAPH_DEPTH, GRAPH_CLASSES = 16, 8, 64, 3, 6
EDGES_PER_NODE = 6


class MessageLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.message = nn.Sequential(
            nn.Linear(2 * GRAPH_WIDTH + EDGE_FEATURES, GRAPH_WIDTH),
            nn.SiLU(),
            nn.Linear(GRAPH_WIDTH, GRAPH_WIDTH),
        )
        self.update = nn.Sequential(
            nn.Linear(3 * GRAPH_WIDTH, GRAPH_WIDTH), nn.SiLU(), nn.Linear(GRAPH_WIDTH, GRAPH_WIDTH)
        )
        self.norm = nn.LayerNorm(GRAPH_WIDTH)

    def forward(self, nodes: torch.Tensor, edges: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        """Return the nodes after one exchange of messages. `ends` has the indices of each edge's
        source and target.
        """
        source, target = ends
        messages = self.message(torch.cat((nodes[source], nodes[target], edges), dim=-1)).to(
            nodes.dtype
        )
        total = torch.zeros_like(nodes).index_add(0, target, messages)
        index = target.unsqueeze(-1).expand_as(messages)
        strongest = torch.zeros_like(nodes).scatter_reduce(
            0, index, messages, "amax", include_self=False
        )
        return nodes + self.update(self.norm_of(nodes, total, strongest))

    def norm_of(self, *parts: torch.Tensor) -> torch.Tensor:
        return torch.cat([self.norm(part) for part in parts], dim=-1)


class GraphNetwork(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Linear(NODE_FEATURES, GRAPH_WIDTH)
        self.layers = nn.ModuleList(MessageLayer() for _ in range(GRAPH_DEPTH))
        self.head = nn.Linear(GRAPH_WIDTH, GRAPH_CLASSES)

    def forward(
        self,
        nodes: torch.Tensor,
        edges: torch.Tensor,
        ends: torch.Tensor,
        graph: torch.Tensor,
        sizes: torch.Tensor,
    ) -> torch.Tensor:
        """Return logits per graph; `graph` is each node's graph index, `sizes` the number of nodes
        of each graph.
        """
        x = self.enter(nodes)
        for layer in self.layers:
            x = layer(x, edges, ends)
        total = x.new_zeros(sizes.shape[0], GRAPH_WIDTH).index_add(0, graph, x)
        return self.head(total / sizes.unsqueeze(-1).to(x.dtype))


def graphs(batch_size: int, mean_size: int) -> Inputs:
    sizes = torch.randint(mean_size // 2, mean_size + mean_size // 2 + 1, (batch_size,))
    starts = sizes.cumsum(0) - sizes
    graph = torch.arange(batch_size).repeat_interleave(sizes)
    home = graph.repeat_interleave(EDGES_PER_NODE)
    ends = (torch.rand(2, len(home)) * sizes[home]).long() + starts[home]
    return {
        "nodes": torch.randn(len(graph), NODE_FEATURES),
        "edges": torch.randn(len(home), EDGE_FEATURES),
        "ends": ends,
        "graph": graph,
        "sizes": sizes,
    }


graph_network = Recipe(GraphNetwork, graphs, (8, 16, 48, 64), 32, "nodes a graph", class_loss)
