"""Make torch make, fix and guard symbolic shapes in every way that it can be made to on a CPU.

    TORCH_TRACE=folder python tests/data/trace/record_shapes.py

`python tests/data/trace/filter_log.py … +create_symbol +create_unbacked_symbol
+symbolic_shape_specialization
+guard_added_fast +dynamo_output_graph` then makes the recording small.
"""

import torch
import torch._dynamo as dynamo

dynamo.config.capture_dynamic_output_shape_ops = True
dynamo.config.capture_scalar_outputs = True


def run(name, f, *calls, **options):
    dynamo.reset()
    c = torch.compile(f, backend="eager", **options)
    for call in calls:
        try:
            c(*call())
        except Exception as error:
            print(name, type(error).__name__, str(error)[:160].replace("\n", " "))


def marked(t, *dims):
    for d in dims:
        dynamo.mark_dynamic(t, d)
    return t


def unbacked(t, *dims):
    for d in dims:
        dynamo.decorators.mark_unbacked(t, d)
    return t


def branch(x):
    if x.shape[0] > 10:
        return x + 1
    return x - 1


def specialize(x):
    return x * int(x.shape[0] == 8) if x.shape[0] == 8 else x


def as_range(x):
    y = x
    for _ in range(x.shape[0]):
        y = y + 1
    return y


def view_of(x):
    return x.view(4, -1)


def add(x, y):
    return x + y


def pairs(x, y):
    return torch.cat([x, y])


def nonzero(x):
    i = x.nonzero()
    return i * 2


def nonzero_checked(x):
    i = x.nonzero()
    torch._check(i.size(0) >= 2)
    return i[:2] * 2


def nonzero_branch(x):
    i = x.nonzero()
    if i.size(0) > 3:
        return i
    return i + 1


def item(x):
    n = x.item()
    torch._check(n >= 1)
    torch._check(n <= 64)
    return torch.zeros(n)


def add_fixed(x):
    return x + torch.ones(6, 3)


def plain(x):
    return x * 2


def integer(x, n):
    if n > 3:
        return x * n
    return x


t = torch.randn
run("branch", branch, lambda: (t(8, 4),), dynamic=True)
run("specialize", specialize, lambda: (t(8, 4),), dynamic=True)
run("range", as_range, lambda: (t(5, 4),), dynamic=True)
run("view", view_of, lambda: (t(8, 3),), dynamic=True)
run("broadcast", add, lambda: (t(6, 3), t(6, 3)), dynamic=True)
run("one", plain, lambda: (t(1, 7),), dynamic=True)
run("marked", plain, lambda: (marked(t(6, 3), 0),))
run("marked_specialized", add_fixed, lambda: (marked(t(6, 3), 0),))
run("fixed", add_fixed, lambda: (t(6, 3),), dynamic=True)
run("cat", pairs, lambda: (t(6, 3), t(9, 3)), dynamic=True)
run("nonzero", nonzero, lambda: (t(6),))
run("nonzero_checked", nonzero_checked, lambda: (torch.ones(6),))
run("nonzero_branch", nonzero_branch, lambda: (torch.ones(6),))
run("item", item, lambda: (torch.tensor(9),))
run("unbacked", branch, lambda: (unbacked(t(12, 4), 0),))
run("unbacked_plain", plain, lambda: (unbacked(t(1, 4), 0),))
run("integer", integer, lambda: (t(4), 5), lambda: (t(4), 7))
run("automatic", plain, lambda: (t(4, 2),), lambda: (t(5, 2),))
