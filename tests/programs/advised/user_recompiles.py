"""Programs as users write them that recompile, each also with the advice followed by hand."""

from dataclasses import dataclass

from tests.programs.advised.edits import edit_program


@dataclass(frozen=True)
class UserProgram:
    """A program that recompiles, the fixes that are to be suggested first, and the program with
    them followed.
    """

    name: str
    text: str
    fix_ids: tuple[str, ...]
    followed: str | None = None  # None where nothing is to be done


_TOKENS = """\
import torch
from torch import nn

class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.head = nn.Embedding(50, 8), nn.Linear(8, 2)

    def forward(self, input_ids, attention_mask):
        hidden = self.embedding(input_ids) * attention_mask.unsqueeze(-1)
        return self.head(hidden.sum(1) / attention_mask.sum(1, keepdim=True))

def collate(length):
    input_ids = torch.arange(4 * length).view(4, length) % 50
    return {"input_ids": input_ids, "attention_mask": torch.ones(4, length)}

model, result = torch.compile(Encoder()), []
for length in (7, 9, 12):
    batch = collate(length)
    result.append(model(**batch))
"""
_LAST_BATCH = """\
import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
data = TensorDataset(torch.randn(22, 6), torch.randn(22, 1))
model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))

@torch.compile
def train_step(features, target):
    return torch.nn.functional.mse_loss(model(features), target)

result = []
for features, target in DataLoader(data, batch_size=8):
    result.append(train_step(features, target))
"""
_POSITION = """\
import torch

class Decoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.position = 0

    def forward(self, token):
        self.position += token.shape[-1]
        return token * 2 + self.position

decoder = Decoder()
compiled = torch.compile(decoder)
result = [compiled(torch.ones(1, 2)) for _ in range(5)]
"""
_CROPS = """\
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())

@torch.compile
def embed(image):
    return net(image)

result = []
for side in (16, 20, 24):
    image = torch.ones(2, 3, side, side + 3)
    result.append(embed(image))
"""
_BOXES = """\
import torch

@torch.compile
def largest(boxes):
    return max_area(boxes) * 2

def max_area(boxes):
    area = torch.zeros(())
    for box in boxes:
        area = torch.maximum(area, (box[2] - box[0]) * (box[3] - box[1]))
    return area

result = []
for count in (2, 5, 3):
    boxes = [torch.tensor([0.0, 0.0, k + 1.0, 2.0]) for k in range(count)]
    result.append(largest(boxes))
"""
_TEMPERATURE = """\
import torch

class Sampler(torch.nn.Module):
    temperature = 1.5

    def forward(self, logits):
        return torch.softmax(logits / self.temperature, -1)

sampler, result = Sampler(), []
compiled = torch.compile(sampler)
for step in range(4):
    sampler.temperature = 1.5 - 0.1 * step
    result.append(compiled(torch.arange(4.0)))
"""
_EVALUATION = """\
import torch

torch.manual_seed(0)

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.drop = torch.nn.Linear(4, 4), torch.nn.Dropout(0.0)

    def forward(self, x):
        return self.drop(self.layer(x))

net, result = Net(), []
compiled = torch.compile(net)
for epoch in range(3):
    net.train()
    result.append(compiled(torch.ones(2, 4)))
    net.eval()
    result.append(compiled(torch.ones(2, 4)))
"""
_BLOCKS = """\
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self, layer_idx):
        super().__init__()
        self.layer_idx = layer_idx
        self.proj = nn.Linear(4, 4)

    def forward(self, x):
        return x + self.proj(x) / (self.layer_idx + 1)

torch.manual_seed(0)
blocks = nn.ModuleList(Block(index) for index in range(5))
for block in blocks:
    block.compile()
result = torch.ones(2, 4, requires_grad=True)
for block in blocks:
    result = block(result)
"""
_PROMPT = """\
import torch

@torch.compile
def attend(query, keys):
    return torch.softmax(query @ keys.transpose(-1, -2), -1) @ keys

keys, result = torch.ones(6, 4), []
for query_count in (6, 1, 1):
    result.append(attend(torch.ones(query_count, 4), keys))
"""
_CACHE = """\
import torch

@torch.compile
def step(token, keys, values):
    keys, values = torch.cat([keys, token]), torch.cat([values, token * 2])
    return torch.softmax(token @ keys.t(), -1) @ values, keys, values

keys = values = torch.ones(2, 4)
values, result = values * 2, []
for position in range(4):
    out, keys, values = step(torch.full((1, 4), float(position)), keys, values)
    result.append(out)
"""
_LOSS_SCALE = """\
import torch

LOSS_SCALE = 1024

@torch.compile
def scaled(loss):
    return loss * LOSS_SCALE

result = []
for step in range(4):
    result.append(scaled(torch.tensor(0.5)))
    LOSS_SCALE //= 2
"""
_LOGGED = """\
import torch

@torch.compile
def forward(points):
    centred = points - points.mean(0)
    torch._dynamo.graph_break()
    return (centred * centred).sum(1)

result = []
for count in (10, 12, 15):
    result.append(forward(torch.arange(3.0 * count).view(count, 3)))
"""
_MASK = """\
import torch

@torch.compile
def pool(x, mask=None):
    if mask is not None:
        x = x * mask
    return x.mean(0)

x = torch.arange(12.0).view(4, 3)
result = [pool(x), pool(x, torch.ones(4, 1)), pool(x)]
"""
_WINDOW = """\
import torch

@torch.compile
def smooth(signal, window):
    out = signal
    for shift in range(1, window):
        out = out + signal.roll(shift)
    return out / window

result = [smooth(torch.arange(8.0), window) for window in (2, 3, 4, 5)]
"""
_CHANNELS_LAST = """\
import torch

@torch.compile
def normalise(image):
    return (image - image.mean()) / 2

image = torch.arange(24.0).view(1, 2, 3, 4)
result = [normalise(image), normalise(image.to(memory_format=torch.channels_last))]
"""
_EXTRA_KEYS = """\
import torch

@torch.compile
def total_loss(losses):
    return sum(losses.values())

result = []
for step in range(3):
    losses = {"main": torch.tensor(1.0 * step)}
    if step % 2:
        losses["auxiliary"] = torch.tensor(0.5)
    result.append(total_loss(losses))
"""

_PAST = """\
import torch

@torch.compile
def attend(x, past):
    for keys, values in past:
        x = x + torch.softmax(x @ keys.t(), -1) @ values
    return x

result = []
for length in (3, 4, 5):
    past = [(torch.ones(length, 4), torch.full((length, 4), 2.0)) for _ in range(2)]
    result.append(attend(torch.ones(2, 4), past))
"""
_STEPS = """\
import torch

class Diffusion(torch.nn.Module):
    steps = 2

    def forward(self, x):
        for _ in range(self.steps):
            x = self.denoise(x)
        return x

    def denoise(self, x):
        return x * 0.5

model, result = Diffusion(), []
compiled = torch.compile(model)
for steps in (2, 3, 4):
    model.steps = steps
    result.append(compiled(torch.ones(3)))
"""
_SELECTED = """\
import torch
from torch import nn

class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.head = nn.Embedding(20, 8), nn.Linear(8, 20)

    def forward(self, tokens, position):
        x = self.embedding(tokens).cumsum(1)
        return self.head(x[:, position])

decoder, result = torch.compile(Decoder()), []
tokens = torch.ones(2, 8, dtype=torch.long)
for position in range(2, 7):
    logits = decoder(tokens, position)
    tokens[:, position + 1] = logits.argmax(-1)
    result.append(logits)
"""
_WRITTEN = """\
import torch

class Cache(torch.nn.Module):
    position = 0

    def forward(self, keys, key):
        keys[:, self.position] = key
        return keys.sum(1)

cache, keys, result = Cache(), torch.zeros(2, 8, 4), []
compiled = torch.compile(cache)
for position in range(2, 7):
    cache.position = position
    result.append(compiled(keys, torch.ones(2, 4) * position))
"""
_TABLE = """\
import torch

class Lookup(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.ones(2, 4))

    def forward(self, x):
        return (x @ self.table.t()).sum()

lookup, result = Lookup(), []
compiled = torch.compile(lookup)
for step in range(4):
    result.append(compiled(torch.ones(1, 4)))
    lookup.table = torch.cat([lookup.table, torch.ones(1, 4)])
"""
_SCAN = """\
import torch

@torch.compile
def smooth(frames):
    state = torch.zeros(3)
    for i in range(frames.shape[0]):
        state = torch.tanh(frames[i] + state)
    return state

result = [smooth(torch.ones(count, 3)) for count in (4, 6, 5)]
"""
_INNER_SCAN = """\
import torch

def scan(rewards):
    total, out = torch.zeros(3), []
    for reward in reversed(rewards.unbind(0)):
        total = reward + 0.9 * total
        out.append(total)
    return torch.stack(out[::-1])

@torch.compile
def advantage(rewards, values):
    return scan(rewards) - values

result = [advantage(torch.ones(n, 3), torch.zeros(3)) for n in (5, 8, 6)]
"""


def _name_dynamic(text: str, source: str) -> str:
    setting = f'torch.compiler.config.dynamic_sources = "{source}"\n'
    return text.replace("import torch\n", f"import torch\n\n{setting}", 1)


USER_PROGRAMS = (
    UserProgram(
        "tokens",
        _TOKENS,
        ("size-of-several-inputs",),
        edit_program(
            _TOKENS,
            (
                "    result.append(model",
                "    for tensor in batch.values():\n"
                "        torch._dynamo.maybe_mark_dynamic(tensor, 1)\n"
                "    result.append(model",
            ),
        ),
    ),
    UserProgram(
        "last-batch",
        _LAST_BATCH,
        ("size-of-several-inputs",),
        edit_program(
            _LAST_BATCH,
            (
                "    result.append(",
                "    torch._dynamo.maybe_mark_dynamic(features, 0)\n"
                "    torch._dynamo.maybe_mark_dynamic(target, 0)\n"
                "    result.append(",
            ),
        ),
    ),
    UserProgram(
        "position",
        _POSITION,
        ("dynamic-number",),
        _name_dynamic(_POSITION, "L['self'].position"),
    ),
    UserProgram(
        "crops",
        _CROPS,
        ("size-of-an-input",),
        edit_program(
            _CROPS,
            (
                "    result.append(",
                "    torch._dynamo.maybe_mark_dynamic(image, [2, 3])\n    result.append(",
            ),
        ),
    ),
    UserProgram(
        "scan",
        _SCAN,
        ("size-that-a-loop-runs-to",),
        edit_program(
            _SCAN,
            ("@torch.compile\ndef smooth", "def smooth"),
            (
                "    state = torch.zeros",
                "    add = torch.compile(lambda frame, state: torch.tanh(frame + state))\n"
                "    state = torch.zeros",
            ),
            ("torch.tanh(frames[i] + state)\n    return", "add(frames[i], state)\n    return"),
        ),
    ),
    UserProgram(
        "inner-scan",
        _INNER_SCAN,
        ("int-that-is-needed",),
        edit_program(
            _INNER_SCAN,
            (
                "def scan",
                "add = torch.compile(lambda reward, total: reward + 0.9 * total)\n\ndef scan",
            ),
            (
                "total = reward + 0.9 * total\n        out",
                "total = add(reward, total)\n        out",
            ),
            ("@torch.compile\ndef advantage", "def advantage"),
        ),
    ),
    UserProgram(
        "boxes",
        _BOXES,
        ("list-that-is-looped",),
        edit_program(
            _BOXES,
            (
                "    area = torch.zeros(())\n"
                "    for box in boxes:\n"
                "        area = torch.maximum(area, (box[2] - box[0]) * (box[3] - box[1]))\n"
                "    return area\n",
                "    return ((boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])).amax()\n",
            ),
            (
                "    result.append(largest(boxes))",
                "    stacked = torch.stack(boxes)\n"
                "    torch._dynamo.maybe_mark_dynamic(stacked, 0)\n"
                "    result.append(largest(stacked))",
            ),
        ),
    ),
    UserProgram(
        "temperature",
        _TEMPERATURE,
        ("attribute-float",),
        edit_program(_TEMPERATURE, ("= 1.5 - 0.1 * step", "= torch.tensor(1.5 - 0.1 * step)")),
    ),
    UserProgram("evaluation", _EVALUATION, ("training",)),
    UserProgram(
        "blocks",
        _BLOCKS,
        ("dynamic-number",),
        _name_dynamic(_BLOCKS, "L['self'].layer_idx"),
    ),
    UserProgram(
        "prompt",
        _PROMPT,
        ("last-batch",),
        edit_program(
            _PROMPT,
            (
                "    result.append(attend(torch.ones(query_count, 4), keys))",
                "    query = torch.nn.functional.pad(torch.ones(query_count, 4), (0, 0, 0, "
                "6 - query_count))\n"
                "    result.append(attend(query, keys)[:query_count])",
            ),
        ),
    ),
    UserProgram(
        "cache",
        _CACHE,
        ("size-of-several-inputs",),
        edit_program(
            _CACHE,
            (
                "for position in range(4):\n",
                "for position in range(4):\n"
                "    torch._dynamo.maybe_mark_dynamic(keys, 0)\n"
                "    torch._dynamo.maybe_mark_dynamic(values, 0)\n",
            ),
        ),
    ),
    UserProgram(
        "loss-scale",
        _LOSS_SCALE,
        ("dynamic-number",),
        _name_dynamic(_LOSS_SCALE, "G['LOSS_SCALE']"),
    ),
    UserProgram(
        "logged",
        _LOGGED,
        ("size-of-an-input",),
        edit_program(
            _LOGGED,
            ("    torch._dynamo.graph_break()\n", ""),
            (
                "    result.append(forward(torch.arange(3.0 * count).view(count, 3)))",
                "    points = torch.arange(3.0 * count).view(count, 3)\n"
                "    torch._dynamo.maybe_mark_dynamic(points, 0)\n"
                "    result.append(forward(points))",
            ),
        ),
    ),
    UserProgram(
        "mask",
        _MASK,
        ("none",),
        edit_program(
            _MASK,
            (
                "pool(x), pool(x, torch.ones(4, 1)), pool(x)",
                "pool(x, torch.ones(4, 1)), pool(x, torch.ones(4, 1)), pool(x, torch.ones(4, 1))",
            ),
        ),
    ),
    UserProgram(
        "window",
        _WINDOW,
        ("int-that-the-code-needs",),
        edit_program(
            _WINDOW,
            (
                "@torch.compile\ndef smooth",
                "add_rolled = torch.compile(lambda out, rolled: out + rolled)\n\ndef smooth",
            ),
            ("out + signal.roll(shift)", "add_rolled(out, signal.roll(shift))"),
        ),
    ),
    UserProgram(
        "channels-last",
        _CHANNELS_LAST,
        ("stride",),
        edit_program(
            _CHANNELS_LAST,
            (
                "memory_format=torch.channels_last))",
                "memory_format=torch.channels_last).contiguous())",
            ),
        ),
    ),
    UserProgram(
        "extra-keys",
        _EXTRA_KEYS,
        ("dict-keys",),
        edit_program(
            _EXTRA_KEYS,
            (
                "torch.tensor(1.0 * step)}",
                'torch.tensor(1.0 * step), "auxiliary": torch.tensor(0.0)}',
            ),
        ),
    ),
    UserProgram(
        "past",
        _PAST,
        ("size-of-several-inputs",),
        edit_program(
            _PAST,
            (
                "    result.append(",
                "    for tensor in (tensor for pair in past for tensor in pair):\n"
                "        torch._dynamo.maybe_mark_dynamic(tensor, 0)\n"
                "    result.append(",
            ),
        ),
    ),
    UserProgram(
        "steps",
        _STEPS,
        ("int-that-the-code-needs",),
        edit_program(
            _STEPS,
            (
                "compiled = torch.compile(model)",
                "compiled = model\nmodel.denoise = torch.compile(model.denoise)",
            ),
        ),
    ),
    UserProgram(
        "table",
        _TABLE,
        ("size-of-a-parameter",),
        edit_program(
            _TABLE,
            (
                "import torch\n",
                (
                    "import torch\n\ntorch.compiler.config.dynamic_sources = "
                    "\"L['self']._buffers['table']\"\n"
                ),
            ),
        ),
    ),
    UserProgram(
        "selected-position",
        _SELECTED,
        ("int-that-is-a-position",),
        edit_program(
            _SELECTED,
            ("x[:, position]", "x.index_select(1, position).squeeze(1)"),
            ("decoder(tokens, position)", "decoder(tokens, torch.tensor([position]))"),
        ),
    ),
    UserProgram(
        "written-position",
        _WRITTEN,
        ("int-that-is-a-position",),
        edit_program(
            _WRITTEN,
            (
                "keys[:, self.position] = key",
                "keys.index_copy_(1, self.position, key.unsqueeze(1))",
            ),
            ("cache.position = position", "cache.position = torch.tensor([position])"),
        ),
    ),
)
