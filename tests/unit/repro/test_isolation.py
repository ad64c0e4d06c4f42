"""Trials in processes of their own: every way in which one can end, and what is left afterwards."""

from __future__ import annotations

import os
import tempfile
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from compileboard.collectors.contract.repros import ReproInput, ReproManifest
from compileboard.collectors.repro.isolation import run_task
from compileboard.collectors.repro.preloads import (
    absolute_name,
    list_preload,
    recall_preload,
    remember_preload,
)
from compileboard.collectors.repro.repro import NotRunnable, Repro
from compileboard.collectors.repro.trials import TrialLimits
from tests.tools.observed import PLAIN_CODE, SEARCHED, forking_environ, wait_for

pytestmark = pytest.mark.torch
REPRO = Repro(ReproManifest(kind="compile", level="aot"), "mod = None\n")
OTHER = Repro(
    ReproManifest(kind="compile", level="dynamo", backend="mine"), "mod = None\n"
)  # loads no inductor
TASKS = "tests.programs.repro_tasks"


@pytest.fixture(autouse=True)
def own_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have drivers make their folders where the test can look for what they leave."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def _run(
    task: str, seconds: float = 30, repro: Repro = OTHER, **options: object
) -> dict[str, object]:
    return run_task(
        f"{TASKS}:{task}",
        repro,
        limits=TrialLimits(seconds),
        environment={**forking_environ(), "PYTHONPATH": SEARCHED},
        **options,
    )  # type: ignore[arg-type]


def _processes_in(folder: Path) -> list[int]:
    name = os.fsencode(folder)
    numbers = [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]
    return [number for number in numbers if name in _read(Path(f"/proc/{number}/cmdline"))]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_trial_ends_in_every_way_and_leaves_nothing(tmp_path: Path) -> None:
    answer = _run("try_all")
    assert answer["rows"] == {
        "add": ["ok", 3, [], None],
        "raised": ["raised", None, [["RuntimeError", "outer"], ["KeyError", "'inner'"]], None],
        "crash": ["signal", None, [], "SIGSEGV"],
        "late": ["timed_out", None, [], None],
        "memory": ["out_of_memory", None, [["MemoryError", ""]], None],
        "left": ["raised", None, [["SystemExit", "it ended with exit code 3"]], None],
    }
    assert str(answer["cache"]).startswith(str(answer["folder"]))
    assert list(tmp_path.iterdir()) == [] and wait_for(lambda: not _processes_in(tmp_path), 5)


def test_trial_by_the_fork_server_survives_a_crash() -> None:
    rows = _run("try_server")["rows"]
    assert rows == [["ok", 7, [], None], ["signal", None, [], "SIGSEGV"], ["ok", 11, [], None]]


@pytest.mark.nightly
def test_repro_that_never_ends_is_ended_by_the_time_limit(tmp_path: Path) -> None:
    with pytest.raises(
        NotRunnable,
        match="loading the repro did not end within the time limit; --timeout allows more",
    ):
        _run("hang", seconds=1)
    assert list(tmp_path.iterdir()) == [] and wait_for(lambda: not _processes_in(tmp_path), 5)


def test_interrupt_ends_the_driver(tmp_path: Path) -> None:
    def interrupt(message: dict[str, object]) -> None:
        if message.get("stage"):
            raise KeyboardInterrupt

    before = set(threading.enumerate())  # other tests' libraries may have their own
    with pytest.raises(KeyboardInterrupt):
        _run("hang", on_progress=interrupt)
    assert list(tmp_path.iterdir()) == [] and wait_for(lambda: not _processes_in(tmp_path), 5)
    assert set(threading.enumerate()) <= before


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("preload", "sentence"),
    [
        ("absent_library_x", "needs absent_library_x, which is not installed here"),
        ("absent.py", "there is no such file"),
        ("json:absent", "cannot preload json:absent: AttributeError"),
    ],
)
def test_preload_that_fails_is_one_sentence(preload: str, sentence: str) -> None:
    with pytest.raises(NotRunnable, match=sentence):
        _run("try_all", preload=[preload])


def test_preloaded_file_is_run_once_however_often_it_is_named(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "open('ran', 'a').write('x')\ndef more(): open('ran', 'a').write('y')\n"
    )
    script = f"{tmp_path / 'mine.py'}"
    assert _run("read_preloaded", preload=[script, f"{script}:more"])["ran"] == "xy"


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "import os; os._exit(3)",
            r"ended with exit code 3 while preloading \S+mine.py: it printed nothing; what regis",
        ),
        (
            "import sys; sys.exit()",
            r"cannot preload \S+mine.py: SystemExit; what registers nothing belongs below `if __",
        ),
        ("while True: pass", "preloading did not end within the time limit; --timeout allows more"),
    ],
)
def test_preloaded_script_that_ends_or_never_ends_is_one_sentence(
    text: str, sentence: str, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(text)
    with pytest.raises(NotRunnable, match=sentence):
        _run("read_preloaded", seconds=3, preload=[str(tmp_path / "mine.py")])


def test_preloaded_script_compiles_nothing(tmp_path: Path) -> None:
    compiled = (
        "import torch\n@torch.compile(backend=lambda *_: 1 / 0)\ndef f(x): return x + "
        "1\nf(torch.ones(2))\n"
    )
    (tmp_path / "mine.py").write_text(f"{compiled}open('ran', 'a').write('x')\n")
    assert _run("read_preloaded", preload=[str(tmp_path / "mine.py")])["ran"] == "x"


@pytest.mark.nightly
@pytest.mark.real_start
def test_processor_is_asked_once_for_all_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMPILEBOARD_HOME", str(tmp_path / "home"))
    for name in PLAIN_CODE:
        monkeypatch.delenv(name)
    assert _run("read_processor", repro=REPRO)["is_known"] is True
    assert list((tmp_path / "home/repro/processor").iterdir())


def test_device_that_is_not_here_is_one_sentence() -> None:
    with pytest.raises(
        NotRunnable, match=r"needs cuda:9, and this machine has \d+ GPUs; try --device cpu"
    ):
        _run("try_all", device="cuda:9")


def test_a_recorded_file_is_replaced_by_the_one_that_is_given() -> None:
    assert list_preload(("train.py", "ops"), ("/home/me/train.py:plant",)) == [
        "/home/me/train.py:plant",
        "ops",
    ]
    assert list_preload(("train.py", "ops"), ("ops2",)) == ["ops2", "train.py", "ops"]


PROGRAM = """
import torch
class Repro(torch.nn.Module):
    def forward(self, x):
        sin = torch.sin(x)
        return (sin,)
mod = Repro()
"""
INPUT = ReproInput("x", dtype="float32", shape=(2,), stride=(1,), storage=0, storage_bytes=8)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("preload", [[], ["train.py:mine"]])
def test_backend_is_registered_from_the_script_in_the_folder_of_its_run(
    preload: list[str], tmp_path: Path
) -> None:
    refuses = "def mine(gm, inputs): raise NotImplementedError('no sin')\n"
    (tmp_path / "train.py").write_text(refuses)
    manifest = replace(
        OTHER.manifest,
        preload=("train.py",),
        inputs=(INPUT,),
        error_type="NotImplementedError",
        message="no sin",
    )
    repro = Repro(manifest, PROGRAM, folders=(str(tmp_path),))
    answer = run_task(
        "compileboard.collectors.repro.rerun:rerun",
        repro,
        limits=TrialLimits(60),
        preload=preload,
        environment=os.environ,
    )
    assert answer["status"] == "same"


def test_preload_is_remembered_for_its_program_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = {"COMPILEBOARD_HOME": str(tmp_path / "home")}
    (tmp_path / "train.py").touch()
    monkeypatch.chdir(tmp_path)
    remember_preload(OTHER, [absolute_name("train.py:plant"), absolute_name("ops")], environment)
    names, folders = recall_preload(OTHER, environment)
    assert names == [f"{tmp_path / 'train.py'}:plant", "ops"] and folders == [str(tmp_path)]
    assert recall_preload(replace(OTHER, program="mod = 1"), environment) == ([], [])


@pytest.mark.nightly
def test_no_process_of_a_repro_may_take_all_memory() -> None:
    answer = _run("read_limits")
    most = 0.85 * int(str(answer["free"]))
    assert int(str(answer["driver"])) < most and int(str(answer["trial"])) < most


@pytest.mark.real_start
def test_inductor_is_not_loaded_for_another_backend() -> None:
    assert _run("read_inductor")["is_loaded"] is False
