"""Embed a query's words as one vector."""

from torch import nn

AXES = {"t": 24, "h": 4, "d": 8}


def fold(x, pattern):
    """Reshape and permute by a pattern: fold(x, "b t h d -> b h t d")."""
    before, after = (side.split() for side in pattern.split("->"))
    x = x.reshape([x.shape[0] if axis == "b" else AXES[axis] for axis in before])
    return x.permute([before.index(axis) for axis in after])


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)

    def forward(self, x):
        q, k, v = (
            fold(projection(x), "b t h d -> b h t d")
            for projection in (self.query, self.key, self.value)
        )
        weights = (q @ k.transpose(-1, -2) * AXES["d"] ** -0.5).softmax(-1)
        return self.out(fold(weights @ v, "b h t d -> b t h d").flatten(-2))


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        x = x + self.attention(self.first(x))
        return x + self.down(nn.functional.gelu(self.up(self.second(x))))


class Encoder(nn.Module):
    def __init__(self, width=32, depth=2):
        super().__init__()
        self.layers = nn.ModuleList(Layer(width) for _ in range(depth))
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return nn.functional.normalize(self.norm(x).mean(1), dim=-1)
