import torch


class Layer(torch.nn.Module):
    def forward(self, x):
        print(x.shape)  # the break
        return torch.sin(x)


class Stage(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(Layer() for _ in range(2))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return torch.cos(x)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.stages = torch.nn.ModuleList(Stage() for _ in range(2))

    def forward(self, x):
        for stage in self.stages:  # the block
            x = stage(x)
        return torch.tanh(x)


net = torch.compile(Net())


def call():
    return net(torch.ones(4))


for _ in range(3):
    call()
