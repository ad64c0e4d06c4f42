"""Check names against the installed torch, in a child process, before anything is measured.

A backend, mode or setting that this torch lacks would otherwise fail in every model, each after an
import of torch.
"""

from __future__ import annotations

import difflib
import json
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from typing import Any

from compileboard.collectors.bench.plan.settings import BenchSettings, load_settings
from compileboard.start import shared_command

# Available in torch 2.4 to 2.13, so that torch need not be imported to check them.
KNOWN = frozenset(
    ("inductor", "eager", "aot_eager", "aot_eager_decomp_partition", "cudagraphs", "eager_noexcept")
)
ALWAYS_THERE = (
    None,
    "default",
    "reduce-overhead",
    "max-autotune",
    "max-autotune-no-cudagraphs",
)  # modes of any torch
ASK = "import json, torch._dynamo; print(json.dumps(torch._dynamo.list_backends(exclude_tags=())))"
ASK_TIMEOUT_S = 120.0


def _ask(command: Sequence[str]) -> Any:
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=ASK_TIMEOUT_S,
            stdin=subprocess.DEVNULL,
        )
        return json.loads(done.stdout.splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return None


def check_backend(name: str) -> None:
    """Raises ValueError if torch lacks the backend. If torch cannot be imported, each model reports
    the error.
    """
    if name in KNOWN:
        return
    listed = list_backends()
    if listed and name not in listed:
        near = difflib.get_close_matches(name, listed, n=3) or [
            known for known in listed if "TESTING_ONLY" not in known
        ]
        raise ValueError(f"--backend {name}: torch has no such backend; it has {', '.join(near)}")


def list_backends() -> list[str]:
    names = _ask([sys.executable, "-c", ASK])
    return [str(name) for name in names] if isinstance(names, list) else []


def answer(dumped: str) -> None:
    from compileboard.collectors.bench.worker.torch_setup import check

    try:
        check(load_settings(dumped))
        error = None
    except ValueError as wrong:
        error = str(wrong)
    sys.stdout.write(json.dumps({"error": error}) + "\n")


def needs_asking(settings: BenchSettings) -> bool:
    return (
        settings.is_cuda
        or bool(settings.inductor_config)
        or settings.compile_mode not in ALWAYS_THERE
    )


@cache
def check_settings(settings: BenchSettings) -> None:
    if needs_asking(settings):
        reply = _ask(shared_command(f"{__name__}:answer", settings.dump()))
        if isinstance(reply, dict) and reply.get("error") is not None:
            raise ValueError(reply["error"])
