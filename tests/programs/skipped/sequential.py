import torch


class Noisy(torch.nn.Module):
    def forward(self, x):
        print(x.shape)  # the break
        return torch.sin(x)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear(4, 4), Noisy(), torch.nn.Linear(4, 4))

    def forward(self, x):
        x = torch.tanh(x)
        return torch.relu(self.body(x))


net = torch.compile(Net())


def call():
    return net(torch.ones(2, 4))


for _ in range(3):
    call()
