"""Calls that Dynamo cannot trace: the standard library, C extensions, files, context managers."""

from __future__ import annotations

from compileboard.collectors.fixes.breaks.program import program
from compileboard.collectors.fixes.fix import Fix

TIME = program("""
    import time

    import torch


    @torch.compile
    def step(x):
        start = time.perf_counter()
        y = x @ x
        return y, time.perf_counter() - start


    y, duration_s = step(torch.ones(4, 4))
    result = y
""")
RANDOM = program("""
    import random

    import torch


    @torch.compile
    def drop_path(x):
        keep = random.random() < 2.0
        return x * keep


    result = drop_path(torch.arange(4.0))
""")
RANDOM_BRANCH = program("""
    import random

    import torch


    @torch.compile
    def augment(x):
        if random.random() < 2.0:
            x = x.flip(-1)
        return x + 1


    result = augment(torch.arange(4.0))
""")
JSON = program("""
    import json

    import torch


    @torch.compile
    def scale(x, text):
        factor = json.loads(text)["factor"]
        return x * factor


    result = scale(torch.arange(4.0), '{"factor": 2.0}')
""")
EXTENSION = program("""
    import heapq

    import torch


    @torch.compile
    def shortest(x, lengths):
        heap = list(lengths)
        heapq.heapify(heap)
        return x[: heap[0]]


    result = shortest(torch.arange(4.0), [3, 2])
""")
OPEN = program("""
    import os

    import torch


    @torch.compile
    def step(x):
        with open(os.devnull, "a") as file:
            file.write("step")
        return x * 2


    result = step(torch.arange(4.0))
""")
LOCK = program("""
    import threading

    import torch

    lock = threading.Lock()


    @torch.compile
    def step(x):
        with lock:
            y = x * 2
        return y + 1


    result = step(torch.arange(4.0))
""")
FRAME = program("""
    import sys

    import torch


    @torch.compile
    def step(x):
        y = x * 2
        caller = sys._getframe()
        return y + 1


    result = step(torch.arange(4.0))
""")
SEED = program("""
    import torch


    @torch.compile
    def sample(x):
        torch.manual_seed(1)
        return x + torch.ones(4)


    result = sample(torch.arange(4.0))
""")
LIBRARY = program("""
    import json

    import torch


    def audit(y):  # of a library
        return json.dumps(list(y.shape))


    @torch.compile
    def step(x):
        y = x * 2
        audit(y)
        return y + 1


    result = step(torch.arange(4.0))
""")

GENERATOR = program("""
    import torch


    @torch.compile
    def sample(x):
        generator = torch.Generator()
        generator.manual_seed(0)
        return x + torch.rand(4, generator=generator)


    result = sample(torch.arange(4.0))
""")
MEMORY = program("""
    import torch


    @torch.compile
    def step(x):
        used_bytes = torch.cuda.memory_allocated()
        return x * 2, used_bytes


    result = step(torch.arange(4.0))
""")
SAVE = program("""
    import os

    import torch


    @torch.compile
    def step(x):
        y = x * 2
        torch.save(y, os.devnull)
        return y + 1


    result = step(torch.arange(4.0))
""")
DATETIME = program("""
    import datetime

    import torch


    @torch.compile
    def step(x):
        started = datetime.datetime.now()
        return x * 2, started


    y, started = step(torch.arange(4.0))
    result = y
""")

FIXES = (
    Fix(
        id="time_in_caller",
        kind="graph_break",
        keys=("GB0007",),
        title="Measure around the compiled call, not inside",
        applies="The function of the module time is called in compiled code.",
        cost="None. Inside, a time measures the launch; `torch.profiler.record_function` is traced.",
        before=TIME,
        after=program("""
            import time

            import torch


            @torch.compile
            def step(x):
                return x @ x


            start = time.perf_counter()
            y = step(torch.ones(4, 4))
            duration_s = time.perf_counter() - start
            result = y
        """),
    ),
    Fix(
        id="random_torch",
        kind="graph_break",
        keys=("GB0007",),
        title="Draw with `torch.rand(())` instead of {expression}",
        applies="A random number of Python steers tensors.",
        cost="Other random numbers: seed torch.",
        before=RANDOM,
        after=program("""
            import torch


            @torch.compile
            def drop_path(x):
                keep = torch.rand(()) < 2.0
                return x * keep


            result = drop_path(torch.arange(4.0))
        """),
    ),
    Fix(
        id="random_where",
        kind="graph_break",
        keys=("GB0007",),
        title="Draw with `torch.rand(())` and choose with `torch.where` instead of a branch on {expression}",
        applies="A random number of Python decides what runs. An `if` on one of torch breaks the graph too.",
        cost="Both sides are computed. Other random numbers: seed torch.",
        before=RANDOM_BRANCH,
        after=program("""
            import torch


            @torch.compile
            def augment(x):
                x = torch.where(torch.rand(()) < 2.0, x.flip(-1), x)
                return x + 1


            result = augment(torch.arange(4.0))
        """),
    ),
    Fix(
        id="call_in_caller",
        kind="graph_break",
        keys=("GB0156",),
        title="Call {expression} in the caller and pass its result in",
        applies="The arguments are no tensors made in the compiled function.",
        cost="None. A number that varies may recompile once.",
        before=JSON,
        after=program("""
            import json

            import torch


            @torch.compile
            def scale(x, factor):
                return x * factor


            result = scale(torch.arange(4.0), json.loads('{"factor": 2.0}')["factor"])
        """),
    ),
    Fix(
        id="extension_in_caller",
        kind="graph_break",
        keys=("GB0007",),
        title="Call {expression} in the caller, or write it in Python",
        applies="The function is compiled code, which Dynamo cannot read.",
        cost="None. A function of tensors becomes a `torch.library.custom_op`.",
        before=EXTENSION,
        after=program("""
            import torch


            @torch.compile
            def shortest(x, lengths):
                return x[: min(lengths)]


            result = shortest(torch.arange(4.0), [3, 2])
        """),
    ),
    Fix(
        id="file_in_caller",
        kind="graph_break",
        keys=("GB0059", "GB0142"),
        title="Open files in the caller",
        applies="The function reads or writes a file. It runs eagerly until then.",
        cost="None.",
        before=OPEN,
        after=program("""
            import os

            import torch


            @torch.compile
            def step(x):
                return x * 2


            with open(os.devnull, "a") as file:
                file.write("step")
            result = step(torch.arange(4.0))
        """),
    ),
    Fix(
        id="context_in_caller",
        kind="graph_break",
        keys=("GB0142",),
        title="Enter {expression} in the caller, around the compiled call",
        applies="Dynamo does not know the context manager. The function runs eagerly until then.",
        cost="The context covers the whole call.",
        before=LOCK,
        after=program("""
            import threading

            import torch

            lock = threading.Lock()


            @torch.compile
            def step(x):
                y = x * 2
                return y + 1


            with lock:
                result = step(torch.arange(4.0))
        """),
    ),
    Fix(
        id="frame_guarded",
        kind="graph_break",
        keys=("GB0007",),
        title="Call {expression} only where the code runs eagerly",
        applies="The call is for debugging: frames, imports, counters.",
        cost="The call is skipped in compiled code.",
        before=FRAME,
        after=FRAME.replace(
            "    caller = sys._getframe()\n",
            "    if not torch.compiler.is_compiling():\n        caller = sys._getframe()\n",
        ),
    ),
    Fix(
        id="seed_in_caller",
        kind="graph_break",
        keys=("GB0007",),
        title="Seed in the caller, before the compiled call",
        applies="torch.manual_seed or a torch.Generator is used in compiled code.",
        cost="None.",
        before=SEED,
        after=program("""
            import torch


            @torch.compile
            def sample(x):
                return x + torch.ones(4)


            torch.manual_seed(1)
            result = sample(torch.arange(4.0))
        """),
    ),
    Fix(
        id="parts_around",
        kind="graph_break",
        keys=("GB0156",),
        title="Nothing removes this break: compile the parts around {expression}",
        applies="The break is inside a library, which cannot be changed.",
        cost="The parts are separate graphs: nothing fuses across them.",
        before=LIBRARY,
        after=program("""
            import json

            import torch


            def audit(y):  # of a library
                return json.dumps(list(y.shape))


            @torch.compile
            def head(x):
                return x * 2


            @torch.compile
            def tail(y):
                return y + 1


            y = head(torch.arange(4.0))
            audit(y)
            result = tail(y)
        """),
    ),
    Fix(
        id="generator_in_caller",
        kind="graph_break",
        keys=("GB0363", "GB7650", "GB0055"),
        title="Draw with the torch.Generator in the caller, and pass the numbers in",
        applies="A torch.Generator is made, seeded or used in compiled code.",
        cost="The random numbers are a tensor of their own: nothing fuses with drawing them.",
        before=GENERATOR,
        after=program("""
            import torch


            @torch.compile
            def sample(x, noise):
                return x + noise


            generator = torch.Generator()
            generator.manual_seed(0)
            result = sample(torch.arange(4.0), torch.rand(4, generator=generator))
        """),
    ),
    Fix(
        id="device_query_in_caller",
        kind="graph_break",
        keys=("GB0208",),
        title="Call {expression} in the caller",
        applies="A function of torch returns a number of the device or the process.",
        cost="None.",
        before=MEMORY,
        after=program("""
            import torch


            @torch.compile
            def step(x):
                return x * 2


            result = step(torch.arange(4.0)), torch.cuda.memory_allocated()
        """),
    ),
    Fix(
        id="save_in_caller",
        kind="graph_break",
        keys=("GB0007",),
        title="Return the tensor, and call {expression} in the caller",
        applies="A tensor is saved, loaded or sent in compiled code.",
        cost="None.",
        before=SAVE,
        after=program("""
            import os

            import torch


            @torch.compile
            def step(x):
                y = x * 2
                return y + 1, y


            result, y = step(torch.arange(4.0))
            torch.save(y, os.devnull)
        """),
    ),
    Fix(
        id="clock_in_caller",
        kind="graph_break",
        keys=("GB0156",),
        title="Ask for the time in the caller",
        applies="A method of datetime is called in compiled code.",
        cost="None.",
        before=DATETIME,
        after=program("""
            import datetime

            import torch


            @torch.compile
            def step(x):
                return x * 2


            started = datetime.datetime.now()
            result = step(torch.arange(4.0))
        """),
    ),
)
