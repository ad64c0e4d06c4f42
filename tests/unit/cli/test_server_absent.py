"""In an environment that only collects, the reading command line says what is missing."""

from __future__ import annotations

import sys

import pytest

from tests.tools.observed import Workplace

BLOCKED = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {absent!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
from compileboard.app.cli.main import main
sys.exit(main({arguments!r}))
"""


@pytest.mark.parametrize(
    ("absent", "arguments"),
    [
        (("flask", "jinja2", "gunicorn", "plotly", "pandas", "numpy"), ["serve"]),
        (("gunicorn",), ["serve"]),
        (("sqlite_utils",), ["migrate", "--db", "new.db"]),
    ],
)
def test_a_command_without_the_servers_packages_names_the_extra(
    workplace: Workplace, absent: tuple[str, ...], arguments: list[str]
) -> None:
    done = workplace.plain(sys.executable, "-c", BLOCKED.format(absent=absent, arguments=arguments))
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith(
        "compileboard: the dashboard needs: pip install 'compileboard[server]' ("
    )
    assert "Traceback" not in done.stderr
