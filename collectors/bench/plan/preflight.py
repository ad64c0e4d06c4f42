"""What torch has, checked before anything is measured. Asked in a child: the command has no torch."""

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

# What torch 2.4 to 2.13 has: asking costs an import of torch.
KNOWN = frozenset(("inductor", "eager", "aot_eager", "aot_eager_decomp_partition", "cudagraphs", "eager_noexcept"))
ALWAYS_THERE = (None, "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")  # modes of any torch
ASK = "import json, torch._dynamo; print(json.dumps(torch._dynamo.list_backends(exclude_tags=())))"
ASK_TIMEOUT_S = 120.0


def _ask(command: Sequence[str]) -> Any:
    """Return what a child prints as JSON in its last line; None if it cannot be asked."""
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
    """Check that torch has a backend; if it cannot be asked, each model says what is wrong.

    Raises: ValueError in words if torch has no such backend.
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
    """Return the backends that torch knows, those of installed packages too; none if it cannot be asked."""
    names = _ask([sys.executable, "-c", ASK])
    return [str(name) for name in names] if isinstance(names, list) else []


def answer(dumped: str) -> None:
    """Print what is wrong with settings, as JSON; in a child."""
    from compileboard.collectors.bench.worker.torch_setup import check

    try:
        check(load_settings(dumped))
        error = None
    except ValueError as wrong:
        error = str(wrong)
    sys.stdout.write(json.dumps({"error": error}) + "\n")


def needs_asking(settings: BenchSettings) -> bool:
    """Return whether anything is asked for that a torch may lack: asking costs an import of it."""
    return settings.device == "cuda" or bool(settings.inductor_config) or settings.compile_mode not in ALWAYS_THERE


@cache
def check_settings(settings: BenchSettings) -> None:
    """Check that torch takes the settings; if it cannot be asked, each model says what is wrong.

    Raises: ValueError in words for a device, a mode or an inductor setting that is not there.
    """
    if needs_asking(settings):
        reply = _ask(shared_command(f"{__name__}:answer", settings.dump()))
        if isinstance(reply, dict) and reply.get("error") is not None:
            raise ValueError(reply["error"])
