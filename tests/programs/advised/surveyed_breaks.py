"""Programs of an earlier survey of graph breaks: 53 of 29 kinds, each running by itself."""

from __future__ import annotations

import re

_HEAD = re.compile(r"^# -- (?P<name>.+) (?P<gb_id>GB\d{4})(?: of (?P<inputs>.+))?$", re.MULTILINE)
_TEMPLATE = """import torch

torch.manual_seed(0)
{body}

result = [torch.compile(f)({inputs}) for _ in range(2)]
"""
_TEXT = """
# -- print of constants GB0059
def f(x):
    y = x * 2
    print("loss", 3)
    return y + 1
# -- print of a tensor GB0059
def f(x):
    y = x * 2
    print("loss", y.sum())
    return y + 1
# -- logger GB0291
import logging
LOG = logging.getLogger("example")
def f(x):
    y = x * 2
    LOG.info("step %s", 1)
    return y + 1
# -- warning GB0007
import warnings
def f(x):
    y = x * 2
    warnings.warn("old", stacklevel=2)
    return y + 1
# -- time GB0007
def f(x):
    import time
    y = x * 2
    time.perf_counter()
    return y + 1
# -- item GB0124
def f(x):
    y = x * 2
    return y * y.sum().item()
# -- item that is a size GB0124
def f(x):
    k = int(x.max())
    return torch.ones(k).sum() + x
# -- item with a branch GB0124
def f(x):
    k = x.sum().item()
    return x * 2 if k > 3 else x * 3
# -- if GB0170
def f(x):
    y = x * 2
    if y.sum() > 0:
        return y + 1
    return y - 1
# -- while GB0170
def f(x):
    while x.sum() < 100:
        x = x * 2
    return x
# -- assert with values GB0170
def f(x):
    y = x * 2
    assert (y >= 0).all(), f"negative: {y.min()}"
    return y
# -- boolean mask GB0036
def f(x):
    return (x * 2)[x > 1].sum() + x
# -- nonzero GB0036
def f(x):
    return torch.nonzero(x).sum() + x
# -- unique GB0036
def f(x):
    return torch.unique(x * 2).sum() + x
# -- repeat_interleave GB0036
def f(x):
    return torch.repeat_interleave(x, x.long()).sum() + x
# -- one_hot GB0246
def f(x):
    return torch.nn.functional.one_hot(x.long()) + 1
# -- slice by a tensor GB0124
def f(x):
    return x[: (x > 1).sum()].sum() + x
# -- tolist of integers GB0033
def f(x):
    return x + x.long().tolist()[1]
# -- tolist of floats GB0109
def f(x):
    return x + x.tolist()[1]
# -- allclose GB0033
def f(x):
    return x + 1 if torch.allclose(x, x * 1) else x - 1
# -- numpy without torch's GB0294
def f(x):
    import numpy as np
    return torch.from_numpy(np.interp((x * 2).numpy(), [0.0, 10.0], [0.0, 20.0])) + 1
# -- numpy.random GB0033
def f(x):
    import numpy as np
    return x * 2 + 0 * np.random.rand()
# -- random GB0007
def f(x):
    import random
    return x * 2 + 0 * random.random()
# -- deepcopy GB4198
def f(x):
    import copy
    return copy.deepcopy(x * 2) + 1
# -- lock GB0142
import threading
LOCK = threading.Lock()
def f(x):
    with LOCK:
        y = x * 2
    return y + 1
# -- open GB0059
def f(x):
    with open("/dev/null") as file:
        file.read()
    return x * 2 + 1
# -- disable GB0098
@torch.compiler.disable
def disabled(x):
    return x * 5
def f(x):
    return disabled(x * 2) + 1
# -- graph_break GB0025
def f(x):
    return (x * 2, torch._dynamo.graph_break())[0] + 1
# -- break in a loop GB0025
def f(x):
    for _ in range(3):
        x = x + 1
        torch._dynamo.graph_break()
    return x
# -- backward GB0123 of torch.arange(4.0), torch.ones(4, requires_grad=True)
def f(x, w):
    loss = (x * w).sum()
    loss.backward()
    return loss.detach()
# -- autograd.grad GB9186 of torch.arange(4.0), torch.ones(4, requires_grad=True)
def f(x, w):
    return torch.autograd.grad((x * w).sum(), w)[0]
# -- module hook GB0083
f = torch.nn.Linear(4, 4)
f.register_full_backward_hook(lambda module, inputs, outputs: None)
# -- mark_dirty GB2464 of torch.arange(4.0, requires_grad=True)
class Dirty(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.add_(1)
    @staticmethod
    def backward(ctx, g):
        return g
def f(x):
    return Dirty.apply(x * 2) + 1
# -- print in a backward GB0059 of torch.arange(4.0, requires_grad=True)
class Prints(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        print("backward")
        return 2 * x * g
def f(x):
    return Prints.apply(x) + 1
# -- sparse GB0015 of torch.eye(4).to_sparse()
def f(s):
    return torch.sparse.mm(s, torch.ones(4, 2)) + 1
# -- json GB0156
def f(x):
    import json
    return x * 2 + len(json.dumps({"a": 1}))
# -- C extension GB0007
def f(x):
    import _heapq
    h = [3, 1]
    _heapq.heapify(h)
    return x * 2 + h[0]
# -- repr GB0569
def f(x):
    return (x * 2, repr(x))[0] + 1
# -- data set GB0056
def f(x):
    y = x * 2
    y.data = x * 3
    return y + 1
# -- requires_grad_ GB8985
def f(x):
    return (x * 2).requires_grad_() + 1
# -- resize_ GB0126
def f(x):
    return (x * 2).resize_(2) + 1
# -- inference mode GB0046
def f(x):
    return (x * 2) + (0 if torch.is_inference_mode_enabled() else 1)
# -- class inside GB8977
def f(x):
    class Local:
        k = 3
    return x * Local.k
# -- random_ GB0107
def f(x):
    return (x * 2).random_() * 0 + 1
# -- manual_seed GB0007
def f(x):
    return (torch.manual_seed(1), x + 1)[1]
# -- parameter GB0264
def f(x):
    return torch.nn.Parameter(x * 2) + 1
# -- sorted GB0207
def f(x):
    return sorted([x[1], x[0]])[0] + x
# -- range of a tensor GB0059
def f(x):
    for _ in range((x > 1).sum()):
        x = x + 1
    return x
# -- LSTM GB0014 of torch.ones(1, 1, 4)
class Recurrent(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = torch.nn.LSTM(4, 2)
    def forward(self, x):
        return self.rnn(x)[0].sum() + x
f = Recurrent()
# -- jit GB4695
scripted = torch.jit.script(torch.nn.Sequential(torch.nn.ReLU()))
def f(x):
    return scripted(x) + 1
# -- frame GB0007
import sys
def f(x):
    return (x * 2, sys._getframe())[0] + 1
# -- library function GB0156
import json
def audit(y):
    return y * 2 + len(json.dumps({"a": 1}))
def f(x):
    y = x * 2
    audit(y)
    return y + 1
# -- caught error GB4315
def f(x):
    try:
        y = x.view(7)
    except RuntimeError:
        y = x * 2
    return y + 1
"""


def list_surveyed() -> dict[str, tuple[str, str]]:
    """Map each program's name to the registry id that it breaks with and its text."""
    matches = list(_HEAD.finditer(_TEXT))
    programs = {}
    for match, after in zip(matches, [*matches[1:], None]):
        body = _TEXT[match.end() : after.start() if after else None].strip("\n")
        text = _TEMPLATE.format(body=body, inputs=match["inputs"] or "torch.arange(4.0)")
        programs[match["name"]] = (match["gb_id"], text)
    return programs
