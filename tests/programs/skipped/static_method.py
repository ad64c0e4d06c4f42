import torch


class Steps:
    @staticmethod
    def walk(x):
        index = 0
        while index < 3:  # the block
            x = torch.sin(x)
            print(index)  # the break
            index += 1
        return torch.cos(x)

    @classmethod
    def run(cls, x):
        return torch.tanh(cls.walk(x))


@torch.compile
def model(x):
    x = torch.exp(x)
    return torch.relu(Steps.run(x))


def call():
    return model(torch.ones(4))


for _ in range(3):
    call()
