import torch


def guarded(x):
    try:  # the block
        x = torch.sin(x)
        print(x.sum())  # the break
        x = torch.cos(x)
    finally:
        x = torch.tanh(x)
    return x


class Net(torch.nn.Module):
    def forward(self, x):
        x = torch.exp(x)
        return torch.relu(guarded(x))


net = torch.compile(Net())


def call():
    return net(torch.ones(4))


for _ in range(3):
    call()
