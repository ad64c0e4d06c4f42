"""A loaded model on its device, used by every experiment. Only in child processes."""

from __future__ import annotations

import contextlib
import copy
import gc
import inspect
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
import torch._dynamo
import torch._dynamo.utils
from torch._dynamo.testing import reset_rng_state
from torch.utils._stats import simple_call_counter

from compileboard.collectors.bench.loaded import Inputs, Loaded
from compileboard.collectors.bench.plan.model_facts import ModelFacts, facts_for
from compileboard.collectors.bench.plan.models import ModelRef, NotAvailable
from compileboard.collectors.bench.plan.settings import BenchSettings
from compileboard.collectors.bench.steps import (
    StepRunner,
    cast,
    cast_inputs,
    list_tensors,
    map_tensors,
    move_inputs,
    run_iterations,
)
from compileboard.collectors.bench.worker.outcome import ExperimentOutcome, Stages

# A model's own sys.exit() is its failure. Ctrl-C reaches bench, which ends the child.
FAILURES = (Exception, SystemExit, KeyboardInterrupt)
WARM_UPS = 5  # as upstream
TORCH_DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


class StageFailed(Exception):
    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Workbench:
    def __init__(self, ref: ModelRef, settings: BenchSettings, stages: Stages) -> None:
        self.ref = ref
        self.settings = settings
        self.stages = stages
        self.facts: ModelFacts = facts_for(ref.suite, ref.name)
        self.artifact_errors: list[str] = []  # Errors of additional files.
        self.batch_sizes: list[int] = []  # The batch size of each timed repeat, if it varies.
        self.rank: int | None = None  # This process's rank, if there are several.
        self.home = settings.device  # device of the model that copies are made from
        self.loaded: Loaded
        self.steps: StepRunner

    def stage(self, name: str) -> None:
        self.stages.begin(name)

    def load(self) -> None:
        """Build the model and move it to the device. Raises StageFailed, caused by the builder's
        error.
        """
        self.loaded = self.build()
        self.steps = StepRunner(self.settings, self.loaded.loss, self.facts)
        if self.settings.activation_checkpointing:
            self._checkpoint()
        eval_mode = self.settings.use_eval_mode or self.facts.find(
            "use_eval_mode", mode=self.settings.mode
        )
        train = self.settings.is_training and not eval_mode
        if not self.loaded.keeps_mode:
            self.module.train(train)
        try:
            self.module.to(self.home)
            if self.settings.channels_last:
                self.module.to(memory_format=torch.channels_last)
            self.loaded.inputs = self.prepare_inputs(self.loaded.inputs, castable=False)
        except FAILURES as error:
            reason = "eager_1st_run_OOM" if is_oom(error) else "model_fail_to_load"
            raise StageFailed(reason) from error

    def _checkpoint(self) -> None:
        enable = getattr(self.module, "gradient_checkpointing_enable", None)
        if enable is None:
            raise NotAvailable(
                "activation checkpointing: only models of transformers have a switch for it"
            )
        enable()

    def build(self) -> Loaded:
        """Call the model's builder. Raises StageFailed, or NotAvailable if the library lacks the
        model.
        """
        ref, part = self.ref, self.settings.part
        module, _, function = ref.builder.partition(":")
        arguments = [] if ref.argument is None else [ref.argument]
        try:
            builder = getattr(import_module(module), function)
            self.seed()
            if part is not None and "part" not in inspect.signature(builder).parameters:
                raise ValueError(f"--part {part}: {ref.name} has no parts to choose from")
            words = {} if part is None else {"part": part}
            batch_size = ref.batch_size_for(self.settings.mode, self.settings.batch_size)
            loaded: Loaded = builder(batch_size, *arguments, **words)
            return loaded
        except NotAvailable:
            raise
        except FAILURES as error:
            raise StageFailed("model_fail_to_load") from error

    def seed(self) -> None:
        reset_rng_state()

    def prepare_inputs(self, inputs: Inputs, *, castable: bool = True) -> Inputs:
        moved = move_inputs(inputs, self.settings.device)
        if self.settings.channels_last:
            moved = map_tensors(
                lambda tensor: (
                    tensor.to(memory_format=torch.channels_last) if tensor.dim() == 4 else tensor
                ),
                moved,
            )
        dtype = TORCH_DTYPES.get(self.facts.dtype_for(self.settings.dtype))
        return cast_inputs(moved, dtype) if castable and dtype else moved

    def cast(self) -> None:
        dtype = self.facts.dtype_for(self.settings.dtype)
        if dtype in TORCH_DTYPES and dtype != "float32":
            cast(self.loaded, TORCH_DTYPES[dtype])

    def prepare(self) -> Callable[..., Any]:
        """Cast the model and mark its batch; return the step to be measured."""
        self.cast()
        mark_batch(self)
        self.steps.use(self.module)
        return self.steps.step()

    @property
    def module(self) -> torch.nn.Module:
        return self.loaded.module

    @property
    def inputs(self) -> Inputs:
        return self.loaded.inputs

    @property
    def batch_size(self) -> int | None:
        if self.loaded.batch_size is not None:
            return self.loaded.batch_size
        shapes = list_shapes(self.inputs)
        return shapes[0][0] if shapes and shapes[0] else None

    def copy_module(self, dtype: torch.dtype | None = None) -> torch.nn.Module:
        module = copy.deepcopy(self.module)
        return module.to(dtype) if dtype else module

    def grad(self) -> contextlib.AbstractContextManager[Any]:
        if self.settings.is_training:
            return torch.enable_grad()
        return torch.no_grad()

    def compile(self, step: Callable[..., Any], **changes: Any) -> Callable[..., Any]:
        options: dict[str, Any] = {
            "backend": self.settings.backend,
            "fullgraph": self.settings.nopython,
            "dynamic": True if self.settings.all_dynamic else None,
            "mode": self.settings.compile_mode,
        }
        if self.settings.has_mode_without_cudagraphs:
            from torch._inductor import list_mode_options

            mode = list_mode_options(self.settings.compile_mode)
            options |= {"mode": None, "options": {**mode, "triton.cudagraphs": False}}
        with failing_as("fail_to_run"):  # a missing backend
            return torch.compile(step, **{**options, **changes})

    def synchronize(self) -> None:
        if self.settings.is_cuda:
            torch.cuda.synchronize()

    def free(self) -> None:
        gc.collect()
        if self.settings.is_cuda:
            torch.cuda.empty_cache()

    def warm_up(
        self, step: Callable[..., Any], module: torch.nn.Module, times: int = WARM_UPS
    ) -> float:
        self.free()
        return self.time_calls(step, module, times)

    def time_calls(self, step: Callable[..., Any], module: torch.nn.Module, times: int) -> float:
        self.synchronize()
        begin = time.perf_counter()
        for _ in range(times):
            # As it is timed: another value would compile again.
            step(module, self.inputs, collect_outputs=self.settings.collect_outputs)
        self.synchronize()
        return time.perf_counter() - begin

    def call(self, step: Callable[..., Any]) -> Any:
        return step(self.module, self.inputs, collect_outputs=self.settings.collect_outputs)

    def run_iterations(
        self,
        step: Callable[..., Any],
        module: torch.nn.Module,
        inputs: Inputs,
        iterations: int | None = None,
    ) -> Any:
        return run_iterations(step, module, inputs, iterations or self.settings.iterations)

    def run_compiled(self, module: torch.nn.Module) -> Any:
        return self.compile(run_iterations)(
            self.steps.step(), module, self.inputs, self.settings.iterations
        )

    def describe(self, outcome: ExperimentOutcome) -> ExperimentOutcome:
        outcome.batch_size = self.batch_size
        outcome.facts["module_training"] = self.module.training
        if self.artifact_errors:
            outcome.facts["artifact_error"] = "; ".join(self.artifact_errors)
        if self.settings.ci:
            # Without it, --ci validates no translation.
            outcome.facts["has_z3"] = find_spec("z3") is not None
        if self.settings.timing:
            outcome.facts["timing"] = torch._dynamo.utils.calculate_time_spent()
            outcome.facts["op_count"] = torch._dynamo.utils.op_count
            outcome.facts["call_counts"] = dict(simple_call_counter)
        if self.settings.is_cuda:
            outcome.hardware = torch.cuda.get_device_name()
        return outcome


def is_oom(error: BaseException) -> bool:
    if isinstance(error, (torch.cuda.OutOfMemoryError, MemoryError)):
        return True
    text = str(error)
    return isinstance(error, RuntimeError) and (
        "out of memory" in text or "can't allocate memory" in text
    )


@contextlib.contextmanager
def failing_as(reason: str, oom: str = "OOM") -> Any:
    try:
        yield
    except StageFailed:
        raise
    except FAILURES as error:
        raise StageFailed(oom if is_oom(error) else reason) from error


@contextlib.contextmanager
def first_eager_run() -> Iterator[None]:
    """Attribute a failure inside the block to the model itself, since it runs without a
    compiler.
    """
    with failing_as("eager_1st_run_fail", "eager_1st_run_OOM"), eagerly():
        yield


def eagerly() -> contextlib.AbstractContextManager[Any]:
    set_stance = getattr(torch.compiler, "set_stance", None)  # from torch 2.6 on
    return set_stance("force_eager") if set_stance else contextlib.nullcontext()


def list_shapes(inputs: Inputs) -> list[torch.Size]:
    return [tensor.shape for tensor in list_tensors(inputs)]


def batch_dimension(tensor: torch.Tensor, batch_size: int) -> int | None:
    """Return the first dimension as long as the batch.

    Source: detect_and_mark_batch of upstream's benchmarks/dynamo/common.py.
    """
    return next(
        (dimension for dimension, size in enumerate(tensor.shape) if size == batch_size), None
    )


def mark_batch(bench: Workbench) -> None:
    """Mark the batch of every input as dynamic, if requested and not 1, as upstream does. Raises
    NotAvailable if no input has it.
    """
    batch_size = bench.batch_size
    if not bench.settings.dynamic_batch_only or batch_size == 1:
        return
    marked = 0
    for tensor in list_tensors(bench.inputs):
        dimension = batch_dimension(tensor, batch_size or 0)
        if dimension is not None:
            torch._dynamo.maybe_mark_dynamic(tensor, dimension)
            marked += 1
    if not marked:
        raise NotAvailable(
            f"--dynamic-batch-only: no input has a dimension of the batch size, {batch_size}"
        )
