"""List the operators that a step calls, and measure how many of them dynamo captures."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeCopyMode, FakeTensorMode
from torch.utils import _pytree
from torch.utils._python_dispatch import TorchDispatchMode

from compileboard.collectors.bench.worker.outcome import ExperimentOutcome, describe_error
from compileboard.collectors.bench.worker.statistics import count_since, dynamo_counts
from compileboard.collectors.bench.worker.timing import output_folder, safe_name
from compileboard.collectors.bench.worker.workbench import (
    FAILURES,
    Workbench,
    eagerly,
    failing_as,
    first_eager_run,
)

CAPTURED = "compileboard: captured"
WARM_UPS = 2


def measure_coverage(bench: Workbench) -> ExperimentOutcome:
    """Measure the share of the model's ops, and of their time, that dynamo captures.

    The columns are those of upstream's coverage file. torch._dynamo.profiler is not used: it counts
    the marks that newer versions set around compiled regions as ops, and finds none captured (seen
    with torch 2.13). Source: coverage_experiment of upstream's benchmarks/dynamo/common.py,
    torch/_dynamo/profiler.py.
    """
    step = bench.prepare()
    graphs: list[torch.fx.GraphModule] = []
    with bench.grad(), first_eager_run():
        bench.stage("eager")
        bench.warm_up(step, bench.module, 1)
    with bench.grad(), failing_as("fail_to_run"):
        bench.stage("compile")
        start = dynamo_counts()
        compiled = bench.compile(step, backend=_make_marking_backend(graphs))
        bench.warm_up(compiled, bench.module, WARM_UPS)
        counted = count_since(start)
        bench.stage("measure")
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            torch._dynamo.run(compiled)(bench.module, bench.inputs, collect_outputs=False)
    spans = [
        (event.name, event.time_range.start, event.time_range.end)
        for event in profile.events() or []
    ]
    return ExperimentOutcome(
        values={"graphs": float(len(graphs)), **compute_coverage(spans), **counted}
    )


def _make_marking_backend(graphs: list[torch.fx.GraphModule]) -> Callable[..., Any]:
    def mark(graph: torch.fx.GraphModule, _inputs: list[Any]) -> Callable[..., Any]:
        graphs.append(graph)

        def call(*args: Any) -> Any:
            with torch.profiler.record_function(CAPTURED):
                return graph.forward(*args)

        return call

    return mark


def compute_coverage(spans: Iterable[tuple[str, float, float]]) -> dict[str, float]:
    calls, captured, total = 0, [0, 0.0], [0, 0.0]
    op_end, captured_end = float("-inf"), float("-inf")
    for name, begin, end in sorted(spans, key=lambda span: (span[1], -span[2])):
        if name == CAPTURED:
            calls, captured_end = calls + 1, end
        elif "::" in name and begin >= op_end:
            op_end = end
            for counter in (total, captured) if end <= captured_end else (total,):
                counter[0] += 1
                counter[1] += end - begin
    return {
        "graph_calls": float(calls),
        "captured_ops": float(captured[0]),
        "total_ops": float(total[0]),
        "pct_ops": captured[0] / max(1, total[0]),
        "pct_time": captured[1] / total[1] if total[1] else 0.0,
    }


DTYPES = {
    torch.bfloat16: "bf16",
    torch.float64: "f64",
    torch.float32: "f32",
    torch.float16: "f16",
    torch.complex32: "c32",
    torch.complex64: "c64",
    torch.complex128: "c128",
    torch.int8: "i8",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.bool: "b8",
    torch.uint8: "u8",
}


def list_operator_inputs(bench: Workbench) -> ExperimentOutcome:
    """Write the operators of a step, called with fake tensors, with their arguments and counts.

    Source: log_operator_inputs of upstream's benchmarks/dynamo/common.py, which defines the file
    format.
    """
    bench.cast()
    bench.stage("measure")
    calls, error = _count_fake(bench), None
    if isinstance(calls, str):  # some models depend on values
        error = calls
        with failing_as("eager_1st_run_fail", "eager_1st_run_OOM"):
            calls = _count(bench, bench.copy_module(), bench.inputs)
    mode = "training" if bench.settings.is_training else "eval"
    path = output_folder(bench) / f"{safe_name(bench.ref.name)}_{mode}.txt"
    path.write_text(format_calls(calls), encoding="utf-8")
    values = {"operators": len({name for name, _ in calls}), "operator_calls": sum(calls.values())}
    facts = {"file": str(path), **({"fake_tensor_error": error} if error else {})}
    return ExperimentOutcome(
        values={name: float(value) for name, value in values.items()}, facts=facts
    )


Calls = Counter[tuple[str, str]]  # (operator, its arguments) → count


def _count_fake(bench: Workbench) -> Calls | str:
    fake = FakeTensorMode()
    try:
        with FakeCopyMode(fake):
            module, inputs = copy.deepcopy(bench.module), copy.deepcopy(bench.inputs)
        with fake:
            return _count(bench, module, inputs)
    except FAILURES as error:
        return describe_error(error)


def _count(bench: Workbench, module: torch.nn.Module, inputs: Any) -> Calls:
    counter = OperatorCounter()
    bench.steps.use(module)
    with bench.grad(), eagerly(), counter:
        bench.steps.step()(module, inputs, collect_outputs=False)
    return counter.calls


class OperatorCounter(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls: Calls = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if not _is_metadata(func):
            self.calls[str(func), format_arguments(args, kwargs)] += 1
        return result


def _is_metadata(func: Any) -> bool:
    schema = func._schema
    names = ("detach", "empty", "lift_fresh", "alias")
    is_view = any(
        argument.alias_info and not argument.alias_info.is_write for argument in schema.arguments
    )
    return is_view or schema.name.partition("::")[2].startswith(names)


class _PlainRepr(str):
    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def format_arguments(args: Any, kwargs: Any) -> str:
    def write(argument: Any) -> Any:
        if isinstance(argument, torch.Tensor):
            dtype = DTYPES.get(argument.dtype, str(argument.dtype).removeprefix("torch."))
            stride = "" if argument.is_contiguous() else f", stride={tuple(argument.stride())}"
            return _PlainRepr(f"T({list(argument.shape)}, {dtype}{stride})")
        return (
            _PlainRepr(DTYPES[argument])
            if isinstance(argument, torch.dtype) and argument in DTYPES
            else argument
        )

    return repr(_pytree.tree_map(write, (args, kwargs)))


def format_calls(calls: Calls) -> str:
    lines: list[str] = []
    for name in sorted({name for name, _ in calls}):
        lines.append(f"Operator: {name}")
        of_this = sorted((-count, text) for (other, text), count in calls.items() if other == name)
        lines += [f"cnt: {-count}, {text}" for count, text in of_this]
    return "".join(f"{line}\n" for line in lines)
