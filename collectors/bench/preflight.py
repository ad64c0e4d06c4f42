"""Know before anything is measured whether this torch can do what is asked for. Asked in a child: it imports torch."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache

from compileboard.collectors.bench.settings import Settings, load_settings
from compileboard.start import shared_command

ALWAYS_THERE = (None, "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")  # modes of any torch
ASK_TIMEOUT_S = 120.0


def answer(dumped: str) -> None:
    """Print what is wrong with settings, as JSON; in a child."""
    from compileboard.collectors.bench.surroundings import check

    try:
        check(load_settings(dumped))
        error = None
    except ValueError as wrong:
        error = str(wrong)
    sys.stdout.write(json.dumps({"error": error}) + "\n")


def needs_asking(settings: Settings) -> bool:
    """Tell whether anything is asked for that a torch may lack: asking costs an import of it."""
    return settings.device == "cuda" or bool(settings.inductor_config) or settings.compile_mode not in ALWAYS_THERE


@cache
def check_settings(settings: Settings) -> None:
    """Let settings pass that torch takes, and any if it cannot be asked: then each model says what is wrong.

    Raises: ValueError in words for a device, a mode or an inductor setting that is not there.
    """
    if not needs_asking(settings):
        return
    try:
        done = subprocess.run(
            shared_command(f"{__name__}:answer", settings.dump()),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=ASK_TIMEOUT_S,
            stdin=subprocess.DEVNULL,
        )
        error = json.loads(done.stdout.splitlines()[-1])["error"]
    except (OSError, subprocess.SubprocessError, ValueError, IndexError, KeyError, TypeError):
        return
    if error is not None:
        raise ValueError(error)
