"""What every version of torch records, in five small programs: one is chosen by its name."""

import sys

import torch

FACTOR = 1


def broken(x):
    y = x + 1
    print("between two graphs")
    return y * 2


def scaled(x):
    return x * FACTOR


def named(x, name):
    return x.sin() if name == "sin" else x.cos()


def compiled(function):
    return torch.compile(function, backend="eager", dynamic=False)


def graph_break():
    compiled(broken)(torch.ones(2))


def size():
    run = compiled(scaled)
    for length in (2, 3, 2, 4):
        run(torch.ones(length))


def global_number():
    global FACTOR
    run = compiled(scaled)
    for FACTOR in (1, 2, 1, 3):  # noqa: B007
        run(torch.ones(2))


def limit():
    run = compiled(named)
    for number in range(12):
        run(torch.ones(2), f"name {number}")


def training():
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    @torch.compile(backend="aot_eager")
    def step(x):
        return model(x).square().mean()

    for _ in range(2):
        optimizer.zero_grad()
        step(torch.ones(4, 3)).backward()
        optimizer.step()


if __name__ == "__main__":
    globals()[sys.argv[1]]()
    print(sum(torch._dynamo.utils.counters["graph_break"].values()))
