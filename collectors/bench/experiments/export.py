"""Export the model with `torch.export`, compare the program with eager, and find the user code
where an export fails.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sysconfig
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch._dynamo
from torch._dynamo.testing import reset_rng_state
from torch._logging.structured import INTERN_TABLE
from torch.utils import _pytree

from compileboard.collectors import bench as harness
from compileboard.collectors.bench.loaded import Inputs
from compileboard.collectors.bench.plan.models import NotAvailable
from compileboard.collectors.bench.worker.child import remove_hooks, write_result
from compileboard.collectors.bench.worker.outcome import EXPORT, ExperimentOutcome, add_samples
from compileboard.collectors.bench.worker.same_as_eager import judge
from compileboard.collectors.bench.worker.statistics import count_since, dynamo_counts
from compileboard.collectors.bench.worker.workbench import FAILURES, Workbench, batch_dimension
from compileboard.collectors.terminal.values import first_line

# Frames of a traceback outside the model: torch's, the standard library's, this harness's.
_TORCH = os.path.realpath(os.path.dirname(torch.__file__)) + os.sep
_LIBRARY = os.path.realpath(sysconfig.get_path("stdlib")) + os.sep
_INSTALLED = re.compile(r"[/\\](?:site|dist)-packages[/\\]")
_COLLECTORS = str(Path(harness.__file__ or "").resolve().parents[1]) + os.sep
_SUITES = str(Path(harness.__file__ or "").resolve().parent / "suites") + os.sep
_OPERATOR = re.compile(
    r"CustomOpDef\(([\w:]+)\)|torch\.ops\.(\w+\.\w+(?:\.\w+)?)|\b(aten[.:]+\w+(?:\.\w+)?)"
    r"|target: ([\w.]+)|call_function (\w+\.\w+\.\w+)\("
)
_LONGEST = 300
_TRACE_VARIABLE = "TORCH_DTRACE"


class ModelExport:
    """A model's exports, with their times, facts and failures.

    Raises NotAvailable if this torch cannot export as the settings require.
    """

    def __init__(self, bench: Workbench, *, strict: bool = False) -> None:
        find_dynamic_shapes(bench)  # a missing feature of this torch is not the model's failure
        self.bench = bench
        self.strict = strict
        self.values: dict[str, float] = {}
        self.facts: dict[str, Any] = {}

    def export(self, module: torch.nn.Module) -> Any:
        args, kwargs = split_inputs(self.bench.inputs)
        with self.bench.steps.autocast():
            return torch.export.export(
                module,
                args,
                kwargs,
                dynamic_shapes=find_dynamic_shapes(self.bench),
                strict=self.strict,
            )

    def export_first(self) -> Any:
        module = self.bench.copy_module()
        begin_s = time.perf_counter()
        program = self.export(module)
        self.values[EXPORT.value] = time.perf_counter() - begin_s
        self.facts["node_count"] = len(program.graph.nodes)
        if self.bench.settings.dynamic:
            self.facts["dynamic_dimension_count"] = count_dynamic(program)
        return program

    def begin(self, stage: str) -> None:
        self.facts["stage"] = stage
        self.bench.stage("load package" if stage == "load" else stage)

    def judge(self, compute: Callable[[], Any]) -> ExperimentOutcome:
        """Return the verdict on a result, with facts of the stage that failed and of a draft."""

        def noting() -> Any:
            self.begin("export")
            try:
                result = compute()
                del self.facts["stage"]
                return result
            except FAILURES as error:
                stage = self.facts["stage"]
                self.facts |= describe_failure(error, stage)
                report = draft(self.bench, self.bench.copy_module()) if stage == "export" else None
                if report is not None:
                    self.facts["draft"] = report
                raise

        outcome = judge(self.bench, noting, iterations=1)
        outcome.values |= self.values
        outcome.facts["export"] = self.facts
        return outcome

    def add_times(self, outcome: ExperimentOutcome) -> None:
        """Add the times of repeated exports; the first, which also loads libraries, is used only if
        another fails.

        Call it last, with the result already written, so that a crash or timeout costs only these
        times.
        """
        bench, facts = self.bench, self.facts
        if EXPORT.value not in outcome.values or "error" in facts:
            return
        facts["first_export_s"] = round(outcome.values[EXPORT.value], 3)
        facts["export_again_error"] = "it did not end: a crash, or the time limit"
        write_result(bench.stages.folder, bench.describe(outcome), bench.stages)
        bench.stage("export again")
        remove_hooks()
        samples_s = []
        try:
            with bench.grad():  # like the first
                for _ in range(bench.settings.cheap_repeats):
                    module = bench.copy_module()
                    torch._dynamo.reset()
                    reset_rng_state()
                    begin_s = time.perf_counter()
                    self.export(module)
                    samples_s.append(time.perf_counter() - begin_s)
        except FAILURES as error:
            facts["export_again_error"] = describe_briefly(error)
        else:
            del facts["export_again_error"]
            add_samples(outcome, EXPORT, samples_s)


def split_inputs(inputs: Inputs) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return ((), dict(inputs)) if isinstance(inputs, dict) else (tuple(inputs), {})


def find_dynamic_shapes(bench: Workbench) -> Any:
    """Return the dynamic dimensions of the inputs in export's form, None if all are static.

    Upstream reads dimensions marked dynamic, but its --dynamic-batch-only marks them differently,
    so that its exports are static. Raises NotAvailable if this torch cannot find the bounds itself.
    """
    if not bench.settings.dynamic:
        return None
    auto = getattr(torch.export.Dim, "AUTO", None)
    if auto is None:
        raise NotAvailable(
            "dynamic shapes of an export need torch.export.Dim.AUTO; torch "
            f"{torch.__version__} has none"
        )

    def choose(leaf: Any) -> dict[int, Any] | None:
        if not isinstance(leaf, torch.Tensor):
            return None
        if bench.settings.all_dynamic:
            return dict.fromkeys(range(leaf.dim()), auto)
        batch_size = bench.batch_size or 0
        dimension = batch_dimension(leaf, batch_size) if batch_size > 1 else None
        return None if dimension is None else {dimension: auto}

    return _pytree.tree_map(
        choose, dict(bench.inputs) if isinstance(bench.inputs, dict) else tuple(bench.inputs)
    )


def count_dynamic(program: Any) -> int:
    names = set(program.graph_signature.user_inputs)
    values = [
        node.meta.get("val")
        for node in program.graph.nodes
        if node.op == "placeholder" and node.name in names
    ]
    shapes = [value.shape for value in values if isinstance(value, torch.Tensor)]
    return sum(not isinstance(size, int) for shape in shapes for size in shape)


def describe_failure(error: BaseException, stage: str) -> dict[str, Any]:
    frame = find_user_frame(error)
    return {
        "stage": stage,
        "error": type(error).__name__,
        "message": first_line(str(error), _LONGEST),
        "operator": find_operator(error),
        "line": _format_line(frame.filename, frame.lineno) if frame else None,
        "source": frame.line if frame else None,
    }


def find_user_frame(error: BaseException) -> traceback.FrameSummary | None:
    for raised in _iterate_causes(error):
        # Dynamo keeps the traced stack separately: the exception's own one has only the tracer.
        stacks = (
            getattr(raised, "real_stack", None) or (),
            traceback.extract_tb(raised.__traceback__),
        )
        for stack in stacks:
            for frame in reversed(list(stack)):
                if is_of_user(frame.filename):
                    return frame
    return None


def find_operator(error: BaseException) -> str | None:
    for raised in _iterate_causes(error):
        operator = getattr(raised, "func", None)
        if isinstance(operator, torch._ops.OpOverload):
            return str(operator)
    match = next(
        filter(None, (_OPERATOR.search(str(raised)) for raised in _iterate_causes(error))), None
    )
    return next(filter(None, match.groups())) if match else None


def is_of_user(path: str) -> bool:
    if path.startswith("<"):
        return False
    path = os.path.realpath(path)  # hooks are loaded by another path than the harness
    if path.startswith(_TORCH) or (path.startswith(_COLLECTORS) and not path.startswith(_SUITES)):
        return False
    return not path.startswith(_LIBRARY) or _INSTALLED.search(path) is not None


def draft(bench: Workbench, module: torch.nn.Module) -> dict[str, Any] | None:
    draft_export = getattr(torch.export, "draft_export", None)  # from torch 2.7 on
    if draft_export is None:
        return None
    bench.stage("draft")
    args, kwargs = split_inputs(bench.inputs)
    begin_s = time.perf_counter()
    report: dict[str, Any] = {"is_sound": False, "failures": []}
    try:
        with _trace_apart(), bench.steps.autocast(), torch.no_grad():
            drafted = draft_export(
                module, args, kwargs, dynamic_shapes=find_dynamic_shapes(bench)
            )._report
        report = {
            "is_sound": drafted.successful(),
            "failures": [_describe_draft(failure) for failure in drafted.failures],
        }
    except Exception as error:  # a draft may fail as the export did
        report["error"] = describe_briefly(error)
    return {**report, "seconds": round(time.perf_counter() - begin_s, 3)}


@contextlib.contextmanager
def _trace_apart() -> Iterator[None]:
    logger = logging.getLogger("torch.__trace")
    handlers = list(logger.handlers)
    with (
        tempfile.TemporaryDirectory() as folder,
        patch.dict(os.environ, {_TRACE_VARIABLE: folder}),
    ):
        try:
            yield
        finally:
            for handler in handlers:
                logger.addHandler(handler)  # an existing handler is not added twice


def _describe_draft(failure: Any) -> dict[str, Any]:
    data: dict[str, Any] = failure.data
    files = {number: path for path, number in INTERN_TABLE.items()}
    places = [
        _format_line(path, frame["line"])
        for frame in data.get("user_stack") or ()
        if is_of_user(path := files.get(frame["filename"], "<unknown>"))
    ]
    message = data.get("reason") or ""
    if "expr" in data:
        message = (
            f"{data['expr']} was taken to be {data['result']}"
            if "result" in data
            else str(data["expr"])
        )
    elif "op" in data:
        message = f"{data['op']}: {message}" if message else f"{data['op']} has no fake kernel"
    return {
        "kind": str(failure.failure_type),
        "message": first_line(message, _LONGEST),
        "line": places[-1] if places else None,
    }


def _iterate_causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    raised: BaseException | None = error
    while raised is not None and id(raised) not in seen:
        seen.add(id(raised))
        yield raised
        raised = raised.__cause__ or raised.__context__


def _format_line(path: str, line: int | None) -> str:
    return f"{os.path.basename(path)}:{line}"


def describe_briefly(error: BaseException) -> str:
    return f"{type(error).__name__}: {first_line(str(error), _LONGEST)}"


def run(bench: Workbench) -> ExperimentOutcome:
    """Export, then check one forward of the program.

    If the export fails, its facts describe the cause and a draft export. A draft is not checked: it
    may be right for these inputs only.
    """
    export = ModelExport(bench, strict=bench.settings.backend == "export_strict")

    def compute() -> Any:
        start = dynamo_counts()
        program = export.export_first()
        if export.strict:  # dynamo is not involved in running it
            export.values |= count_since(start)
        export.begin("run")
        args, kwargs = split_inputs(bench.inputs)
        reset_rng_state()  # tracing may have drawn random numbers
        with bench.steps.autocast():
            return program.module()(*args, **kwargs)

    outcome = export.judge(compute)
    export.add_times(outcome)
    return outcome
