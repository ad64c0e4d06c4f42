"""Run a program under the eager backend in this process; read what our hooks recorded."""

from __future__ import annotations

import contextlib
import io
import logging
import runpy
import tempfile
import unittest.mock
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

import pytest

from compileboard.collectors.contract.events import GraphBroke, Recompiled
from compileboard.collectors.fixes.fix import BreakFacts, EagerFunction, SourceLines
from compileboard.collectors.fixes.statement import find_block
from compileboard.collectors.record.in_process import watch

torch = pytest.importorskip("torch")
import torch._dynamo as dynamo  # noqa: E402
import torch.compiler.config as compiler_config  # noqa: E402
import torch.fx.experimental._config as symbol_config  # noqa: E402
from torch._dynamo.utils import counters  # noqa: E402

Mode = Literal["compiled", "fullgraph", "eager"]


@dataclass
class Outcome:
    """What one program did. `error` is what it raised, by type and first line."""

    graph_breaks: list[GraphBroke] = field(default_factory=list)
    recompiles: list[Recompiled] = field(default_factory=list)
    skipped_count: int = 0
    graph_count: int = 0
    result: Any = None
    printed: str = ""
    reported: Counter[str] = field(default_factory=Counter)  # warnings, and lines of stderr
    error: str | None = None

    @property
    def gb_ids(self) -> Counter[str]:
        """Count the breaks by registry id."""
        return Counter(graph_break.gb_id or graph_break.reason for graph_break in self.graph_breaks)

    @property
    def trouble_count(self) -> int:
        """Count breaks and the functions that run eagerly for them."""
        return len(self.graph_breaks) + self.skipped_count


@contextlib.contextmanager
def restored_settings() -> Iterator[None]:
    """Leave torch's global settings as they were, whatever a program sets."""
    dynamo.reset()
    counters.clear()
    configs = (dynamo.config, symbol_config, compiler_config)
    saved = [config.get_config_copy() for config in configs]
    dtype, threads, grad = (
        torch.get_default_dtype(),
        torch.get_num_threads(),
        torch.is_grad_enabled(),
    )
    deterministic = torch.are_deterministic_algorithms_enabled()
    levels = {
        name: logging.getLogger(name).level for name in ("torch", "torch._dynamo", "torch._guards")
    }
    for name in levels:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    torch.manual_seed(0)
    try:
        yield
    finally:
        for config, values in zip(configs, saved):
            for name, value in config.get_config_copy().items():
                if value != values[name]:
                    setattr(config, name, values[name])
        torch.set_default_dtype(dtype)
        torch.set_num_threads(threads)
        torch.set_grad_enabled(grad)
        torch.use_deterministic_algorithms(deterministic)
        torch.compiler.set_stance("default")
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
        dynamo.reset()


@contextlib.contextmanager
def patched_compile(outcome: Outcome, mode: Mode) -> Iterator[None]:
    """Send what the program compiles to the eager backend, or leave functions as they are."""
    real = torch.compile

    def backend(module: Any, inputs: Any) -> Any:
        outcome.graph_count += 1
        return module.forward

    def compile_eagerly(function: Any = None, **options: Any) -> Any:
        if function is None:
            return lambda decorated: compile_eagerly(decorated, **options)
        if mode == "eager":
            return function
        options = {
            key: value
            for key, value in options.items()
            if key in ("backend", "dynamic", "fullgraph")
        }
        options["fullgraph"] = options.get("fullgraph", False) or mode == "fullgraph"
        return real(function, **{"backend": backend, **options})

    with unittest.mock.patch.object(torch, "compile", compile_eagerly):
        yield


def run_program(path: Path, mode: Mode = "compiled") -> Outcome:
    """Run a program file; what it raises is a part of the outcome."""
    outcome, printed, errors = Outcome(), io.StringIO(), io.StringIO()
    with (
        restored_settings(),
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(errors),
        warnings.catch_warnings(record=True) as warned,
        patched_compile(outcome, mode),
        watch([path.parent]) as record,
    ):
        warnings.simplefilter("always")
        try:
            outcome.result = runpy.run_path(str(path), run_name="__main__")["result"]
        except Exception as error:
            outcome.error = (
                f"{type(error).__name__}: "
                f"{str(error).strip().splitlines()[0] if str(error).strip() else ''}"
            )
        frames = counters["frames"]
        outcome.skipped_count = frames["total"] - frames["ok"] if mode != "eager" else 0
    outcome.reported = Counter([*errors.getvalue().splitlines(), *(str(w.message) for w in warned)])
    outcome.graph_breaks, outcome.recompiles, outcome.printed = (
        record.graph_breaks,
        record.recompiles,
        printed.getvalue(),
    )
    return outcome


@cache
def run_text(text: str, mode: Mode = "compiled", settings: tuple[str, ...] = ()) -> Outcome:
    """Write a program to a file and run it, once a process; settings come after its `import
    torch`.
    """
    text = text.replace("import torch\n", "\n".join(("import torch", *settings)) + "\n", 1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "program.py")
        path.write_text(text, encoding="utf-8")
        return run_program(path, mode)


def list_break_facts(outcome: Outcome, path: Path) -> list[BreakFacts]:
    """Return the facts of each distinct break of a program, in the order they came."""
    lines = path.read_text(encoding="utf-8").splitlines()
    facts = []
    for graph_break in outcome.graph_breaks:
        facts.append(
            BreakFacts(
                gb_id=graph_break.gb_id,
                gb_type=graph_break.gb_type,
                reason=graph_break.reason,
                context=graph_break.debug_context or "",
                explanation=graph_break.explanation or "",
                hints=tuple(graph_break.hints),
                function=graph_break.function,
                file=graph_break.file,
                line=graph_break.line,
                source_line=graph_break.source_line,
                first_line=1,
                lines=tuple(lines),
                eager=_list_eager(graph_break, lines),
            )
        )
    return list(dict.fromkeys(facts))


def _list_eager(graph_break: GraphBroke, lines: Sequence[str]) -> tuple[EagerFunction, ...]:
    if graph_break.outcome != "skipped":
        return ()
    code = SourceLines(graph_break.file or "", 1, tuple(lines))
    block, block_line = find_block(code, graph_break.line) or (None, None)
    eager = EagerFunction(graph_break.function, graph_break.file, None)
    return (replace(eager, block=block, block_line=block_line),)


def is_equal(left: Any, right: Any) -> bool:
    """Return True if two results are equal, tensors to a tolerance."""
    if isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor):
        dense = [
            tensor.detach().to_dense() if tensor.is_sparse else tensor.detach()
            for tensor in (left, right)
        ]
        return dense[0].shape == dense[1].shape and torch.allclose(
            dense[0].double(), dense[1].double(), atol=1e-5, equal_nan=True
        )
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        return len(left) == len(right) and all(is_equal(a, b) for a, b in zip(left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(is_equal(left[key], right[key]) for key in left)
    if isinstance(left, float) and isinstance(right, float):
        return abs(left - right) < 1e-5 or (left != left and right != right)
    return bool(left == right)
