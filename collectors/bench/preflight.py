"""Know before anything is measured whether this torch can do what is asked for. Asked in a child: it imports torch."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache

from collectors.bench.isolate import PACKAGE_ROOT
from collectors.bench.settings import Settings

ALWAYS_THERE = (None, "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")  # modes of any torch
ASK = """import json, sys
sys.path.append(sys.argv[1])
from collectors.bench.settings import load_settings
from collectors.bench.surroundings import check
try:
    check(load_settings(sys.argv[2]))
    said = None
except ValueError as error:
    said = str(error)
print(json.dumps({"error": said}))"""
ASK_TIMEOUT_S = 120.0


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
            [sys.executable, "-c", ASK, str(PACKAGE_ROOT), settings.dump()],
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
