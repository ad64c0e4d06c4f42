"""A graph network: messages along edges, gathered and scattered by index."""

from __future__ import annotations

import torch
from torch import nn

from compileboard.collectors.bench.loaded import Loaded
from compileboard.collectors.bench.suites.builtin.recipe import assemble, class_loss

FEATURES, EDGE_FEATURES, WIDTH, DEPTH, CLASSES = 16, 8, 64, 3, 6
EDGES_PER_NODE = 6


class MessageLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.message = nn.Sequential(
            nn.Linear(2 * WIDTH + EDGE_FEATURES, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH)
        )
        self.update = nn.Sequential(nn.Linear(3 * WIDTH, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH))
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, nodes: torch.Tensor, edges: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        """Return the nodes after one exchange; `ends` has the indices of each edge's source and
        target.
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
        self.enter = nn.Linear(FEATURES, WIDTH)
        self.layers = nn.ModuleList(MessageLayer() for _ in range(DEPTH))
        self.head = nn.Linear(WIDTH, CLASSES)

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
        total = x.new_zeros(sizes.shape[0], WIDTH).index_add(0, graph, x)
        return self.head(total / sizes.unsqueeze(-1).to(x.dtype))


def build(batch_size: int) -> Loaded:
    def make_inputs(mean: int) -> dict[str, torch.Tensor]:
        sizes = torch.randint(mean // 2, mean + mean // 2 + 1, (batch_size,))
        starts = sizes.cumsum(0) - sizes
        graph = torch.arange(batch_size).repeat_interleave(sizes)
        home = graph.repeat_interleave(EDGES_PER_NODE)
        ends = (torch.rand(2, len(home)) * sizes[home]).long() + starts[home]
        return {
            "nodes": torch.randn(len(graph), FEATURES),
            "edges": torch.randn(len(home), EDGE_FEATURES),
            "ends": ends,
            "graph": graph,
            "sizes": sizes,
        }

    return assemble(
        GraphNetwork,
        make_inputs,
        32,
        batch_size=batch_size,
        sizes=(8, 16, 48, 64),
        size_name="nodes a graph",
        loss=class_loss,
    )
