"""A CUDA program with everything in it: train, inference, graph breaks, recompiles, CUDA graphs and
what they skip.
"""

import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(64, 128), nn.Linear(128, 64)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(x)))


class Breaky(Net):
    def forward(self, x):
        x = super().forward(x)
        print("batch", x.shape[0])
        if x.mean() > 0:
            x = x * 2
        torch._dynamo.graph_break()
        return x * x.abs().max().item()


def train():
    model = torch.compile(nn.Sequential(Net(), Net()).to(DEVICE))
    for _ in range(3):
        model(torch.randn(8, 64, device=DEVICE)).square().mean().backward()


def infer():
    model = torch.compile(Breaky().to(DEVICE))
    with torch.no_grad():
        for batch in (4, 8, 16):
            model(torch.randn(batch, 64, device=DEVICE))


def recompile():
    f = torch.compile(lambda x, k: x.sin() * k, dynamic=False)
    for size in (2, 3, 4):
        f(torch.randn(size, device=DEVICE), 1)
    f(torch.randn(2, device=DEVICE), 2)
    f(torch.randn(2, device=DEVICE, dtype=torch.float64), 1)
    f(torch.randn(2), 1)


def cudagraphs():
    fast = torch.compile(Net().to(DEVICE), mode="reduce-overhead")
    mutating = torch.compile(lambda x: x.add_(1).relu(), mode="reduce-overhead")
    from_cpu = torch.compile(lambda x, y: x @ y.to(DEVICE), mode="reduce-overhead")
    with torch.no_grad():
        for _ in range(3):
            fast(torch.randn(8, 64, device=DEVICE))
            mutating(torch.randn(8, 64, device=DEVICE))
            from_cpu(torch.randn(8, 8, device=DEVICE), torch.randn(8, 8))


def fail():
    def broken(graph, inputs):
        raise RuntimeError("<b>this backend</b> always fails")

    try:
        torch.compile(lambda x: x + 1, backend=broken)(torch.randn(2, device=DEVICE))
    except Exception as error:
        print("raised", type(error).__name__)


def main():
    for part in (train, infer, recompile, cudagraphs, fail):
        part()
    print("done", DEVICE)


if __name__ == "__main__":
    main()
