import torch


@torch.compile
def model(x):
    x = torch.sin(x)
    try:  # the block
        print(x.shape)  # the break
        x = torch.cos(x)
    except ValueError:
        x = torch.tanh(x)
    return torch.relu(x)


def call():
    return model(torch.ones(4))


for _ in range(3):
    call()
