"""Programs of some size whose compile time is lost to something: cases of issue reports."""

from __future__ import annotations

from typing import Any

_ENCODER = """import torch


class Layer(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.qkv = torch.nn.Linear(width, 3 * width)
        self.out = torch.nn.Linear(width, width)
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(width) for _ in range(2))
        self.up = torch.nn.Linear(width, 2 * width)
        self.down = torch.nn.Linear(2 * width, width)

    def forward(self, x):
        q, k, v = self.qkv(self.norms[0](x)).chunk(3, -1)
        x = x + self.out(torch.nn.functional.scaled_dot_product_attention(q, k, v))
        return x + self.down(torch.nn.functional.gelu(self.up(self.norms[1](x))))


class Encoder(torch.nn.Module):
    def __init__(self, depth=2, width=32):
        super().__init__()
        self.layers = torch.nn.ModuleList(Layer(width) for _ in range(depth))

    def forward(self, x):
        for number, layer in enumerate(self.layers):
            x = layer(x)
        return x.mean(1)


"""
_PRINTING = _ENCODER.replace(
    "        return x.mean(1)", '        print("encoded")\n        return x.mean(1)'
)
_HALFWAY = _ENCODER.replace(
    "            x = layer(x)\n        return x.mean(1)",
    '            x = layer(x)\n        print("halfway")\n        for layer in self.layers:\n'
    "            x = layer(x)\n        return x.mean(1)",
)
_INNER = _ENCODER.replace(
    "        q, k, v = self.qkv", '        print("layer")\n        q, k, v = self.qkv'
)
_INFER = """model = torch.compile(Encoder())
with torch.no_grad():
    for batch, length in {sizes}:
        model(torch.randn(batch, length, 32))
"""
_TRAIN = """model = torch.compile(Encoder())
for batch in (4, 6, 8):
    model(torch.randn(batch, 8, 32)).sum().backward()
"""
_SAME = _INFER.format(sizes="((4, 8), (4, 8))")
_CHOOSE = """import enum

import torch


class Phase(enum.Enum):
    TRAIN = 1
    TEST = 2
    EXPORT = 3


def step(x, choice):
    y = torch.sin(x) @ x
    if choice in {first}:
        return y.relu()
    if choice in {second}:
        return y.tanh()
    return y.sigmoid()


"""


def _choose(first: str, second: str, choices: str) -> dict[str, Any]:
    head = _CHOOSE.format(first=first, second=second)
    return {
        "text": f"{head}compiled = torch.compile(step)\nfor choice in {choices}:\n"
        "    compiled(torch.randn(8, 8), choice)\n",
        "fixed": f"{head}def make(choice):\n    def own(x):\n        return step(x, choice)\n"
        f"\n    return own\n\n\ncompiled = {{choice: torch.compile(make(choice)) for choice in "
        f"{choices}}}\nfor choice in {choices}:\n    compiled[choice](torch.randn(8, 8))\n",
    }


_DTYPES = """import torch


def step(x, dtype):
    return (torch.sin(x) @ x).to(dtype).relu()


"""
_VIEW = """import torch


def step(x):
    y = x.view(-1)
    print("viewed")
    return y.sin()


compiled = torch.compile(step)
compiled(torch.ones(8))
"""
_RANKS = (
    _ENCODER.replace("import torch\n", "import subprocess\nimport sys\n\nimport torch\n", 1)
    + """if len(sys.argv) == 1:
    ranks = [subprocess.Popen([sys.executable, __file__, str(rank)]) for rank in range(2)]
    sys.exit(max(rank.wait() for rank in ranks))
"""
)

PROGRAMS: list[dict[str, Any]] = [
    {
        "name": "view, print, sin, empty caches",
        "text": _VIEW,
        "has_empty_caches": True,
        "is_first": True,
    },
    {"name": "view, print, sin", "text": _VIEW, "is_first": True},
    {"name": "string", **_choose('("a",)', '("b",)', '("a", "b", "c")')},
    {
        "name": "Enum",
        **_choose("(Phase.TRAIN,)", "(Phase.TEST,)", "(Phase.TRAIN, Phase.TEST, Phase.EXPORT)"),
    },
    {
        "name": "dtype argument",
        "text": _DTYPES + "compiled = torch.compile(step)\n"
        "for dtype in (torch.float16, torch.bfloat16, torch.float64):\n"
        "    compiled(torch.randn(8, 8), dtype)\n",
        "fixed": _DTYPES + "for dtype in (torch.float16, torch.bfloat16, torch.float64):\n"
        "    torch.compile(lambda x, own=dtype: step(x, own))(torch.randn(8, 8))\n",
    },
    {
        "name": "three sizes, dynamic=False",
        "text": _ENCODER
        + _INFER.format(sizes="((4, 8), (6, 8), (8, 8))").replace(
            "Encoder())", "Encoder(), dynamic=False)"
        ),
    },
    {
        "name": "two sizes that vary",
        "text": _ENCODER + _INFER.format(sizes="((4, 8), (6, 8), (6, 12), (4, 16))"),
    },
    {"name": "batch varies", "text": _ENCODER + _INFER.format(sizes="((4, 8), (6, 8), (8, 8))")},
    {"name": "batch varies in training", "text": _ENCODER + _TRAIN},
    {
        "name": "batch varies, two ranks",
        "text": _RANKS + _INFER.format(sizes="((4, 8), (6, 8), (8, 8))"),
    },
    {"name": "print before the last operator", "text": _PRINTING + _SAME},
    {"name": "print in the middle", "text": _HALFWAY + _SAME},
    {"name": "print in an inner module", "text": _INNER + _SAME, "fixed": _ENCODER + _SAME},
    {
        "name": "print in training",
        "text": _HALFWAY + _TRAIN.replace("(4, 6, 8)", "(4, 4)"),
    },
    {
        "name": "print, and the batch varies",
        "text": _HALFWAY + _INFER.format(sizes="((4, 8), (6, 8), (8, 8))"),
        "fixed": _ENCODER.replace("depth=2", "depth=4")
        + _INFER.format(sizes="((4, 8), (6, 8), (8, 8))").replace(
            "        model(torch.randn(batch, length, 32))",
            "        x = torch.randn(batch, length, 32)\n"
            "        torch._dynamo.maybe_mark_dynamic(x, 0)\n        model(x)",
        ),
    },
]
