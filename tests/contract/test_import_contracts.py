"""Who may need what: checked by blocking modules at import, in a fresh interpreter."""

import subprocess
import sys

import pytest

SERVER = ("flask", "plotly", "pandas", "numpy", "sqlite_utils", "gunicorn", "orjson", "zstandard")


def import_with_blocked(statement: str, *blocked: str) -> subprocess.CompletedProcess[str]:
    code = f"import sys\nfor name in {blocked!r}: sys.modules[name] = None\n{statement}"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    "module",
    [
        "compileboard",
        "compileboard.collectors.contract.events",
        "compileboard.collectors.decode.decoder",
        "compileboard.collectors.observe.hooks",
    ],
)
def test_observed_process_needs_the_standard_library_alone(module):
    done = import_with_blocked(
        f"import {module}", *SERVER, "click", "torch", "compileboard.app", "sqlite3"
    )
    assert done.returncode == 0, done.stderr


def test_collector_command_line_needs_no_server_package():
    statement = (
        "from compileboard.collectors.cli import main; "
        "from compileboard.collectors.record import live"
    )
    done = import_with_blocked(statement, *SERVER, "torch", "compileboard.app")
    assert done.returncode == 0, done.stderr


def test_a_command_loads_neither_recorder_nor_http_client_that_it_has_no_use_for(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("COMPILEBOARD_HOME", str(tmp_path / "home"))
    unused = ("http.client", "ssl", "compileboard.collectors.push.sender")
    recorder = "compileboard.collectors.record.recorder"
    db = ["--db", str(tmp_path / "a.db")]
    for words, blocked in (
        (["run", *db, "--", "true"], unused),
        (["list", *db], (*unused, recorder)),
    ):
        statement = f"from compileboard.collectors.cli.main import main; sys.exit(main({words}))"
        done = import_with_blocked(statement, *blocked)
        assert (done.returncode, "Error" in done.stderr) == (0, False), done.stderr


def test_app_needs_no_torch_and_no_hooks():
    done = import_with_blocked(
        "from compileboard import app; app.create_app()",
        "torch",
        "compileboard.collectors.observe",
        "compileboard.collectors.record.live",
    )
    assert done.returncode == 0, done.stderr


def test_importing_collectors_loads_nothing_else():
    done = import_with_blocked(
        "before = set(sys.modules)\nimport compileboard\n"
        "print(sorted(n for n in set(sys.modules) - before if n.startswith(('compileboard', "
        "'torch', 'sqlite'))))"
    )
    assert done.stdout.strip() == "['compileboard', 'compileboard.version']"


def test_dir_lists_what_people_use_and_loads_none_of_it():
    code = "import sys, compileboard; print([n for n in dir(compileboard) if n[0] != '_'])"
    done = import_with_blocked(f"{code}; assert 'compileboard.collectors' not in sys.modules")
    names = ["Run", "bench", "install", "observe", "open", "profile", "stack_room", "uninstall"]
    assert done.stdout.strip() == str(names), done.stderr


def test_a_missing_attribute_says_what_there_is():
    done = import_with_blocked("import compileboard; compileboard.instal")
    assert (
        "it has Run, bench, install, observe, open, profile, stack_room, uninstall" in done.stderr
    )


@pytest.mark.parametrize("room", ["app", "collectors"])
def test_without_click_the_command_line_names_the_extra(room):
    done = import_with_blocked(f"from compileboard.{room}.cli.main import main", "click")
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "click is not installed; pip install 'compileboard[collector]'" in done.stderr


def test_what_is_not_installed_is_named_in_one_sentence(tmp_path):
    words = ["import", "--db", str(tmp_path / "t.db"), "-"]
    done = import_with_blocked(
        f"from compileboard.collectors.cli.main import main; sys.exit(main({words!r}))",
        "sqlite_utils",
    )
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "sqlite-utils is not installed; pip install 'compileboard[collector]'" in done.stderr
