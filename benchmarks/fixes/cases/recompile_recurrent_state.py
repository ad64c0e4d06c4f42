"""A recurrent policy that gets no state at the first step of an episode, and its own later.

Reported: pytorch/pytorch forum, "LSTM state None at the first call"
Right: Start with a state of zeros, as the cell does itself; or two compiles, which is all it costs.
Harm: A state that is kept from one episode to the next.
"""

import torch
from torch import nn


class Policy(nn.Module):
    def __init__(self, inputs=4, size=6, actions=3):
        super().__init__()
        self.cell = nn.GRUCell(inputs, size)
        self.head = nn.Linear(size, actions)

    def forward(self, observation, state=None):
        if state is None:
            state = observation.new_zeros(observation.shape[0], self.cell.hidden_size)
        state = self.cell(observation, state)
        return self.head(state).softmax(-1), state


class Agent:
    def __init__(self, policy):
        self.policy = torch.compile(policy, backend="eager")

    @torch.no_grad()
    def run_episode(self, seed, steps):
        generator = torch.Generator().manual_seed(seed)
        state, actions = None, []
        for _ in range(steps):
            chances, state = self.policy(torch.randn(2, 4, generator=generator), state)
            actions.append(chances.argmax(-1))
        return torch.stack(actions)


torch.manual_seed(0)
agent = Agent(Policy().eval())
result = [agent.run_episode(seed, steps=4) for seed in range(3)]
