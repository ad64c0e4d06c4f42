"""Make AOTAutograd say what it knows of graphs of every kind, a JSON line a graph: its case,
torch's version, the text, and, where torch tells them, the wrappers that it then made.

    python tests/data/trace/record_aot.py tests/data/trace/aot-metadata.jsonl.xz [TRACE_LOG…]

Long for its list of cases, each a few lines of the program that a person would write.

Trace logs of torch 2.11 that are named are read as well: each text that is new among them becomes a
line.
"""

import functools
import json
import logging
import lzma
import sys
from pathlib import Path

import torch
import torch._dynamo
import torch._functorch.config as functorch_config
from torch._functorch.aot_autograd import aot_function, make_boxed_compiler
from torch._inductor.utils import fresh_cache
from torch.testing._internal.two_tensor import TwoTensor

from compileboard.collectors.decode.aot import ARTIFACT as NAME
from compileboard.collectors.decode.aot import WRAPPER_ARTIFACTS

CASES, LINES, SEEN = [], [], {}
TORCH = torch.__version__.split("+")[0]
C = functools.partial(torch.compile, backend="aot_eager", fullgraph=True)
plain = make_boxed_compiler(lambda graph, _inputs: graph)
aot = functools.partial(aot_function, fw_compiler=plain, bw_compiler=plain)


class Keep(logging.Handler):
    case = ""
    line = None

    def emit(self, record):
        name = record.metadata.get("artifact", {}).get("name")
        if name == NAME:
            self.line = write(self.case, TORCH, str(record.payload))
        elif name in WRAPPER_ARTIFACTS and self.line is not None:
            self.line["wrappers"].append(name)


def write(case, version, text):
    text = text.replace(str(Path(__file__).parent), "/srv/bench").replace(
        str(Path(torch.__file__).parents[1]), "/srv/lib"
    )
    if text not in SEEN.get(case, ()) and (version == TORCH or text not in SEEN.get(version, ())):
        SEEN.setdefault(case, set()).add(text)
        SEEN.setdefault(version, set()).add(text)
        LINES.append({"name": case, "torch": version, "metadata_text": text, "wrappers": []})
        return LINES[-1]
    return None


def case(f):
    CASES.append(f)
    return f


def leaf(*shape):
    return torch.randn(*shape or (4, 4), requires_grad=True)


@case
def nothing_special():
    C(lambda x: x.sin() + 1)(torch.randn(4))


@case
def trained():
    C(torch.nn.Linear(4, 4))(torch.randn(4, 4)).sum().backward()


@case
def input_mutated():
    def f(x, y):
        x.add_(y)
        return y + 1

    C(f)(torch.randn(4), torch.randn(4))


@case
def input_mutated_in_epilogue():
    def f(x, y):
        x.mul_(y)
        return y + 1

    C(f)(leaf() * 1, leaf())


@case
def input_mutated_under_no_grad():
    def f(x):
        with torch.no_grad():
            x.mul_(2)
        return x.sin()

    C(f)(leaf())


@case
def input_mutated_through_detach():
    def f(x):
        x.detach().mul_(2)
        return x.sin()

    C(f)(leaf())


@case
def input_mutated_not_kept():
    def f(x):
        x.add_(1)
        return x.sin()

    aot(f)(leaf() * 1)


@case
def running_statistics():
    C(torch.nn.BatchNorm1d(4))(torch.randn(3, 4)).sum().backward()


@case
def metadata_mutated():
    def f(x):
        x.t_()
        return x + 1

    aot(f)(torch.randn(2, 3))


@case
def data_and_metadata_mutated():
    def f(x):
        x.t_()
        x.add_(1)
        return x + 1

    aot(f)(torch.randn(2, 3))


@case
def storage_set():
    def f(x, y):
        with torch.no_grad():
            x.set_(y)
        return x + 1

    aot(f, keep_inference_input_mutations=True)(torch.randn(4), torch.randn(4))


@case
def storage_resized():
    def f(x):
        x.untyped_storage().resize_(64)
        with torch.no_grad():
            x.fill_(1)
        return x + 1

    C(f)(torch.randn(16))


@case
def input_returned():
    def f(x):
        x.add_(1)
        return x, x * 2

    aot(f)(torch.randn(4))


@case
def input_view_returned():
    C(lambda x: (x.view(-1), x.t(), x + 1))(torch.randn(4, 4))


@case
def input_view_returned_trained():
    C(lambda x: (x.view(-1), x * 2))(leaf())


@case
def input_detached_returned():
    C(lambda x: (x.detach(), x * 2))(leaf())


@case
def intermediate_aliased():
    def f(x):
        y = x.sin()
        return y.view(-1), y.t()

    C(f)(leaf())


@case
def intermediate_aliased_by_user_output():
    def f(x):
        y = x.sin()
        return y, y.view(-1)

    C(f)(leaf())


@case
def intermediate_aliased_inference():
    def f(x):
        y = x.sin()
        return y.view(-1), y.t()

    C(f)(torch.randn(4, 4))


@case
def unsafe_view():
    C(lambda x, y: torch.matmul(x, y))(leaf(2, 3, 4), leaf(4, 5))


class Reshape(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view(-1)

    @staticmethod
    def backward(ctx, g):
        return g.view(4, 4)


@case
def custom_function_view():
    C(lambda x: Reshape.apply(x * 2))(leaf())
    C(lambda x: (Reshape.apply(x), x * 2))(leaf())


@case
def synthetic_base():
    def f(x, y):
        x.mul_(2)
        return x + y

    base = torch.randn(4, 4)
    aot(f)(base.view(-1), base.view(-1))
    C(f)(base.view(-1), base.view(-1))


@case
def synthetic_base_trained():
    def f(x, y):
        x.mul_(2)
        return x + y

    base = leaf() * 1
    C(f)(base.view(-1), base.view(-1))


@case
def synthetic_base_metadata_mutated():
    def f(x, y):
        x.mul_(2)
        y.t_()
        return x + 1

    base = torch.randn(4, 4)
    aot(f)(base.view(-1), base.view(4, 4))


@case
def duplicated_arguments():
    def f(x, y):
        x.mul_(2)
        return x + y

    x = torch.randn(4)
    aot(f)(x, x)


@case
def duplicated_arguments_only_read():
    x = leaf()
    aot(lambda x, y: x + y)(x, x)


@case
def rng_functionalized():
    with functorch_config.patch(functionalize_rng_ops=True):
        C(torch.nn.functional.dropout)(leaf())


@case
def dropout():
    C(torch.nn.functional.dropout)(leaf())


@case
def subclass_input():
    C(lambda x: x * 2)(TwoTensor(torch.randn(4), torch.randn(4)))


@case
def subclass_trained():
    x = TwoTensor(torch.randn(4), torch.randn(4)).requires_grad_()
    C(lambda x, y: (x * y, y + 1))(x, leaf(4))


@case
def subclass_view_returned():
    C(lambda x: x.view(-1))(TwoTensor(torch.randn(2, 2), torch.randn(2, 2)))


@case
def no_grad_inference():
    with torch.no_grad():
        C(torch.nn.Linear(4, 4))(leaf())


@case
def inference_mode():
    with torch.inference_mode():
        C(torch.nn.Linear(4, 4))(torch.randn(4, 4))


@case
def grad_mode_changed():
    def f(x):
        y = x.sin()
        torch.set_grad_enabled(False)
        return y

    aot(f)(leaf())
    torch.set_grad_enabled(True)


@case
def dynamic_shapes():
    f = C(lambda x, n: (x * n, x.view(-1), x.shape[0] * 2), dynamic=True)
    f(leaf(6, 4), 3)


@case
def dynamic_subclass():
    C(lambda x: x * 2, dynamic=True)(TwoTensor(torch.randn(5, 3), torch.randn(5, 3)))


@case
def nested_tensor():
    x = torch.nested.nested_tensor([torch.randn(2, 4), torch.randn(3, 4)], layout=torch.jagged)
    C(lambda x: x * 2)(x)


@case
def effect_tokens():
    with functorch_config.patch(unlift_effect_tokens=False):
        aot(lambda x: (torch.ops.aten._print("x"), x.sin())[1])(torch.randn(4))


@case
def several_inputs_mutated():
    def f(*xs):
        for x in xs:
            x.add_(1)
        return xs[0] * 2

    C(f)(*(torch.randn(4) for _ in range(6)))


@case
def deterministic():
    torch.use_deterministic_algorithms(True)
    C(lambda x: x.cumsum(0))(leaf())
    torch.use_deterministic_algorithms(False)


@case
def mutated_in_backward():
    class Count(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, seen):
            ctx.save_for_backward(seen)
            return x * 2

        @staticmethod
        def backward(ctx, g):
            (seen,) = ctx.saved_tensors
            with torch.no_grad():
                seen.add_(1)
            return g * 2, None

    C(Count.apply)(leaf(), torch.zeros(4, 4))


@case
def found_in_cache():
    def f(x):
        return x.view(-1), x.sin()

    with fresh_cache():
        for _ in range(2):
            torch._dynamo.reset()
            torch.compile(f, fullgraph=True)(leaf())[1].sum().backward()


@case
def optimizer_step():
    weights = [leaf() for _ in range(3)]
    optimizer = torch.optim.Adam(weights)
    for weight in weights:
        weight.grad = torch.ones_like(weight)
    torch.compile(optimizer.step, backend="aot_eager")()


@case
def amp():
    with torch.autocast("cpu"):
        C(torch.nn.Linear(4, 4))(torch.randn(4, 4))


def main(out, *logs):
    keep = Keep(level=logging.DEBUG)
    logger = logging.getLogger("torch.__trace")
    logger.addHandler(keep)
    logger.setLevel(logging.DEBUG)
    for make in CASES:
        torch._dynamo.reset()
        keep.case = make.__name__
        before = len(LINES)
        try:
            make()
        except Exception as error:
            print(make.__name__, type(error).__name__, str(error)[:300], file=sys.stderr)
        if len(LINES) == before:
            print(make.__name__, "said nothing new", file=sys.stderr)
    for log in logs:
        read(Path(log))
    Path(out).write_bytes(
        lzma.compress("".join(json.dumps(line) + "\n" for line in LINES).encode(), preset=9)
    )


def read(log):
    header, payload = None, []
    for line in [*log.read_text().splitlines(), ""]:
        if header is not None and line.startswith("\t"):
            payload.append(line[1:])
            continue
        if header is not None:
            compile_id = f"{header['frame_id']}/{header['frame_compile_id']}"
            write(f"{log.parents[1].name} {compile_id}", "2.11", "\n".join(payload))
        header, payload = (
            (json.loads(line[line.index("{") :]), []) if f'"{NAME}"' in line else (None, [])
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
