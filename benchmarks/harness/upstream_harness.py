"""Run upstream's harness on your model.

    python -m benchmarks.harness.upstream_harness COMMON [--stack-room] FLAGS…

COMMON is `benchmarks/dynamo/common.py` of a PyTorch checkout; the harness is in no wheel. Its own
runners know suites that have to be installed; `--only path:…,class:…` needs what is here. With
`--stack-room` all of it runs with room on the frame stack, and otherwise as it is: no frame of ours
lies between its loop and the model in either case.
"""

from __future__ import annotations

import importlib
import logging
import sys
import types
import warnings
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

from compileboard.collectors.stack_room import call_with_room

ROOM = "--stack-room"
# What the harness imports for tables and tests of means that this does not ask for.
_OPTIONAL: dict[str, dict[str, Any]] = {
    "pandas": {},
    "psutil": {  # peak memory on a CPU, which is then not one
        "virtual_memory": lambda: types.SimpleNamespace(total=1),
        "Process": lambda *_pid: types.SimpleNamespace(memory_percent=lambda: 1.0),
    },
    "yaml": {},
    "scipy.stats": {
        "gmean": lambda values: values[0],
        "ttest_ind": lambda *_sides: types.SimpleNamespace(pvalue=0.0),
    },
    "tqdm.auto": {
        "tqdm": lambda values, **_words: values,
        "trange": lambda *bounds, **_words: range(*bounds),
    },
}


def load_common(path: Path) -> Any:
    """Import upstream's module; libraries that it can do without here are replaced where they are
    not installed.
    """
    importlib.import_module("torch._dynamo")  # it looks for some of them itself
    for name, members in _OPTIONAL.items():
        try:
            importlib.import_module(name)
        except ImportError:
            for part in {name.partition(".")[0], name}:
                sys.modules.setdefault(part, types.ModuleType(part)).__spec__ = ModuleSpec(
                    part, None
                )
            sys.modules[name].__dict__.update(members)
    sys.path.insert(0, str(path.resolve().parent))
    return importlib.import_module(path.stem)


def make_runner(common: Any) -> Any:
    """Return a runner of upstream's for a model that `--only` names by its path; torchbench's steps
    are the model's.
    """
    import torch
    from torch._dynamo.testing import collect_results, reduce_to_scalar_loss
    from torch._dynamo.utils import clone_inputs

    class PathRunner(common.BenchmarkRunner):  # type: ignore[misc]  # upstream's class is known at run time alone
        def __init__(self) -> None:
            super().__init__()
            self.suite_name = "torchbench"
            self.optimizer = None
            self.get_output_amp_train_process_func: dict[str, Any] = {}

        def pick_grad(self, name: str, is_training: bool) -> Any:
            return torch.enable_grad() if is_training else torch.no_grad()

        def get_tolerance_and_cosine_flag(
            self, is_training: bool, device: str, name: str
        ) -> tuple[float, bool]:
            return 1e-3, False

        def forward_pass(self, mod: Any, inputs: Any, collect_outputs: bool = True) -> Any:
            with self.autocast(**self.autocast_arg):
                return mod(*inputs)

        def forward_and_backward_pass(
            self, mod: Any, inputs: Any, collect_outputs: bool = True
        ) -> Any:
            cloned = clone_inputs(inputs)
            self.optimizer_zero_grad(mod)
            with self.autocast(**self.autocast_arg):
                pred = mod(*cloned)
                loss = reduce_to_scalar_loss(pred)
            self.grad_scaler.scale(loss).backward()
            self.optimizer_step()
            return collect_results(mod, None, loss, cloned) if collect_outputs else None

    return PathRunner()


def main() -> None:
    """Run it with the flags of the command line."""
    common, flags = load_common(Path(sys.argv[1])), sys.argv[2:]
    with_room = ROOM in flags
    sys.argv = [sys.argv[1], *(flag for flag in flags if flag != ROOM)]
    logging.basicConfig(level=logging.WARNING)
    warnings.filterwarnings("ignore")
    runner = make_runner(common)
    if with_room:
        call_with_room(common.main, runner)
    else:
        common.main(runner)


if __name__ == "__main__":
    main()
