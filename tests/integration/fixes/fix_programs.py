"""Run a fix's programs, with torch's settings as they were before each, and count what the hooks record."""

import contextlib
import linecache
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from compileboard.collectors.contract.events import GraphBroke, Recompiled
from compileboard.collectors.pipeline.in_process import watch


@dataclass
class ProgramOutcome:
    """What one program did; `error` is what it raised."""

    recompiles: list[Recompiled] = field(default_factory=list)
    graph_breaks: list[GraphBroke] = field(default_factory=list)
    skipped_count: int = 0
    result: Any = None
    error: str | None = None

    @property
    def categories(self) -> list[str]:
        return [recompile.guards[0].category for recompile in self.recompiles]


def run_program(
    text: str, *, name: str = "program", settings: tuple[str, ...] = (), eager: bool = False
) -> ProgramOutcome:
    """Run a whole program on the eager backend, or without torch.compile; `settings` come after its `import torch`."""
    from torch._dynamo.utils import counters

    text = text.replace("import torch\n", "\n".join(["import torch", *settings]) + "\n", 1)
    file = f"/srv/{name}.py"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    names: dict[str, Any] = {"__name__": f"fix_program_{name.replace('-', '_')}"}
    outcome = ProgramOutcome()
    with restored_settings(), patched_compile(eager), watch(["/srv"]) as record:
        try:
            exec(compile(text, file, "exec"), names)
        except Exception as error:
            outcome.error = f"{type(error).__name__}: {error}"
        outcome.skipped_count = counters["frames"]["total"] - counters["frames"]["ok"]
    outcome.recompiles, outcome.graph_breaks = record.recompiles, record.graph_breaks
    outcome.result = names.get("result")
    return outcome


@contextlib.contextmanager
def patched_compile(eager: bool) -> Iterator[None]:
    """Make `torch.compile` use the eager backend where none is named, or leave functions as they are."""
    import torch

    real = torch.compile

    def compile_eagerly(model: Any = None, **options: Any) -> Any:
        if model is None:
            return lambda model: compile_eagerly(model, **options)
        return model if eager else real(model, **{"backend": "eager", **options})

    with patch.object(torch, "compile", compile_eagerly):
        if not eager:
            yield
            return
        with patch.object(torch.nn.Module, "compile", lambda self, **options: None):
            yield


@contextlib.contextmanager
def restored_settings() -> Iterator[None]:
    """Leave torch's settings as they were, whatever a program sets."""
    import torch
    import torch.compiler.config
    import torch.fx.experimental._config
    from torch._dynamo.utils import counters

    configs = [torch._dynamo.config, torch.fx.experimental._config, torch.compiler.config]
    torch._dynamo.reset()
    counters.clear()
    state = (torch.get_default_dtype(), torch.get_num_threads(), torch.are_deterministic_algorithms_enabled())
    torch.manual_seed(0)
    copies = [config.get_config_copy() for config in configs]
    try:
        yield
    finally:
        for config, copy in zip(configs, copies):
            for key, value in config.get_config_copy().items():
                if value != copy[key]:
                    setattr(config, key, copy[key])
        dtype, thread_count, deterministic = state
        torch.set_default_dtype(dtype)
        torch.set_num_threads(thread_count)
        torch.use_deterministic_algorithms(deterministic)
        torch.set_grad_enabled(True)
        torch.compiler.set_stance("default")
        torch._dynamo.reset()


def is_same(left: Any, right: Any) -> bool:
    """Return True if two results are equal, tensors within rounding."""
    import torch

    if isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor):
        if left.shape != right.shape:
            return False
        return (
            left.is_meta or right.is_meta or torch.allclose(left.detach().double(), right.detach().double(), atol=1e-2)
        )
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(is_same(a, b) for a, b in zip(left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(is_same(left[key], right[key]) for key in left)
    return bool(left == right)
