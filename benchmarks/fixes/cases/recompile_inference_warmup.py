"""A server that warms its model up in inference mode and serves under no_grad.

Reported: HabanaAI/vllm-fork#640
Right: The same mode for both: no_grad (or inference_mode) in the warm-up and in serving.
Harm: Inference tensors that are used where autograd needs normal ones.
"""

import torch
from torch import nn


class Ranker(nn.Module):
    def __init__(self, size=6):
        super().__init__()
        self.query, self.document = nn.Linear(size, 8), nn.Linear(size, 8)

    def forward(self, query, documents):
        return (self.document(documents) @ self.query(query).unsqueeze(-1)).squeeze(-1)


class Server:
    def __init__(self, model):
        self.model = torch.compile(model.eval(), backend="eager")

    def warm_up(self):
        with torch.inference_mode():
            for _ in range(2):
                self.model(torch.zeros(6), torch.zeros(5, 6))

    def rank(self, query, documents):
        with torch.no_grad():
            return self.model(query, documents).argsort(descending=True)


torch.manual_seed(0)
server = Server(Ranker())
server.warm_up()
result = []
for number in range(3):
    generator = torch.Generator().manual_seed(number)
    query, documents = torch.randn(6, generator=generator), torch.randn(5, 6, generator=generator)
    result.append(server.rank(query, documents))
