"""Break the graph in every cheap way; the log of the same process says what to record."""

import copy
import logging
import sys
import warnings

import torch

log = logging.getLogger("program")


def printing(x):
    y = x + 1
    print("hello")
    return y * 2


def explicit(x):
    y = x + 1
    torch._dynamo.graph_break()
    return y * 2


def branching(x):
    if x.sum() > 0:
        return x + 1
    return x - 1


def item(x):
    return x * x.sum().item()


def tolist(x):
    return x + len(x.tolist())


def skipped_function(x):
    y = x + 1
    sys.getrefcount(y)
    return y * 2


def deep_copying(x):
    y = x + 1
    other = copy.deepcopy([y])
    return other[0] * 2


def logging_call(x):
    y = x + 1
    log.warning("a message")
    return y * 2


def dynamic_shape(x):
    return torch.nonzero(x) + 1


def warning(x):
    y = x + 1
    warnings.warn("careful", stacklevel=1)
    return y * 2


@torch._dynamo.disable
def disabled(x):
    return x + 1


def calls_disabled(x):
    return disabled(x + 1) * 2


def in_a_loop(x):
    for _ in range(2):
        x = x + 1
        torch._dynamo.graph_break()
    return x


def in_a_with(x):
    with torch.no_grad():
        x = x + 1
        torch._dynamo.graph_break()
        return x * 2


class Meta(type):
    def __instancecheck__(cls, other):
        return True


def opening(x):
    y = x + 1
    with open(__file__) as file:
        file.readline()
    return y * 2


def generator(x):
    def numbers():
        yield x + 1
        torch._dynamo.graph_break()
        yield x + 2

    return sum(numbers())


def raises_after(x):
    y = x + 1
    try:
        raise ValueError("inside")
    except ValueError:
        print("caught")
    return y


def set_attribute(x):
    y = x + 1
    setattr(sys, "_a_test_attribute", 1)  # noqa: B010 - the call is the break
    return y * 2


def numpy_free(x):
    return torch.tensor([float(v) for v in x]) + 1


def inner(x):
    y = x + 1
    print("inner")
    return y


def nested(x):
    return inner(x) * 2


FUNCTIONS = [
    printing, explicit, branching, item, tolist, skipped_function, deep_copying, logging_call,
    dynamic_shape, warning, calls_disabled, in_a_loop, in_a_with, opening, generator, raises_after,
    set_attribute, numpy_free, nested,
]  # fmt: skip


def main():
    warnings.simplefilter("ignore")
    for function in FUNCTIONS:
        try:
            torch.compile(function, backend="eager")(torch.ones(4))
        except Exception as error:
            print("raised", function.__name__, type(error).__name__)


if __name__ == "__main__":
    main()
