import torch


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        print(x.shape)  # the break
        return torch.relu(self.linear(x))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList(Block() for _ in range(3))

    def forward(self, x):
        for block in self.blocks:  # the block
            x = block(x)
        return torch.sin(x)


net = torch.compile(Net())


def call():
    return net(torch.ones(2, 4))


for _ in range(3):
    call()
