import torch


class Gate(torch.nn.Module):
    def forward(self, x):
        if x.sum() > 0:  # the break
            return torch.sin(x)
        return torch.cos(x)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gates = torch.nn.ModuleDict({"first": Gate(), "second": Gate()})

    def forward(self, x):
        x = torch.tanh(x)
        for name, gate in self.gates.items():  # the block
            x = torch.add(gate(x), len(name))
        return torch.relu(x)


net = torch.compile(Net())


def call():
    return net(torch.ones(4))


for _ in range(3):
    call()
