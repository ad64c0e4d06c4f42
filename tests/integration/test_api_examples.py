"""The examples in the docstrings of what records from code."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import doctest
from compileboard.collectors import api, stack_room
for module in (api, stack_room):
    print(module.__name__, doctest.testmod(module, optionflags=doctest.ELLIPSIS))
"""


def test_examples_of_what_records_give_what_they_say(tmp_path: Path) -> None:
    environment = {**os.environ, "COMPILEBOARD_HOME": str(tmp_path / "home")}
    finished = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert finished.stdout.count("failed=0") == 2, finished.stdout
    assert "api TestResults(failed=0, attempted=16)" in finished.stdout
