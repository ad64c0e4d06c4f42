import torch


def steps(x):
    for _ in range(3):
        x = torch.sin(x)
        print(x.shape)  # the break
        yield x


@torch.compile
def model(x):
    x = torch.cos(x)
    for y in steps(x):  # the block
        x = torch.add(x, y)
    return torch.relu(x)


def call():
    return model(torch.ones(4))


for _ in range(3):
    call()
