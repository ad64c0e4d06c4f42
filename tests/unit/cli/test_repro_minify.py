"""`repro minify`: what it prints, keeps and ends with, whatever its driver answers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from compileboard.collectors.cli import repro_search
from compileboard.collectors.cli.main import main
from compileboard.collectors.repro.findings import Minification

RECORDED = Path(__file__).parents[2] / "data" / "repros" / "dynamic_pad.txt"
PROGRAM = (
    "class Repro:\n    def forward(self, x):\n        return (torch.erf(x),)\n\nmod = Repro()\n"
)
SMALLEST = Minification(
    "minified",
    25,
    1,
    ("aten.erf.default",),
    failure="differs from eager",
    is_confirmed=True,
    tried_count=4,
    seconds=9.5,
)


@pytest.fixture
def answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return what lets the driver answer something; the options that it is given are kept."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("COMPILEBOARD_HOME", str(tmp_path / "state"))
    shutil.copyfile(RECORDED, tmp_path / "repro.py")
    asked: list[dict[str, Any]] = []

    def give(result: Minification, program: str | None = PROGRAM) -> list[dict[str, Any]]:
        body = {
            "answer": result.dump(),
            "program": program,
            "operation": "x",
            "torch_version": "2.13",
        }

        def work(repro: Any, target: str, options: dict[str, Any], **limits: Any) -> dict[str, Any]:
            asked.append({**options, **limits})
            return json.loads(json.dumps(body))  # type: ignore[no-any-return]

        monkeypatch.setattr(repro_search, "run_repro_task", work)
        return asked

    return give


def test_the_smallest_graph_is_printed_and_kept_beside_its_file(
    answer: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = answer(SMALLEST)
    words = [
        "repro",
        "minify",
        "repro.py",
        "--max-time",
        "60",
        "--strict",
        "--memory",
        "2G",
        "-o",
        "small.py",
    ]
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("25 → 1 operations: aten.erf.default.\nfails: differs from eager\n")
    assert (
        "        return (torch.erf(x),)" in printed
        and "4 trials, 0 answers from memory, 9.5 s" in printed
    )
    assert (asked[0]["max_seconds"], asked[0]["strict"], asked[0]["memory"]) == (
        60.0,
        True,
        2 << 30,
    )
    assert (tmp_path / "small.py").read_text() == PROGRAM
    saved = next((tmp_path / "repro.py.repro").glob("minify-*.json"))
    assert json.loads(saved.read_text())["node_count"] == 1
    assert saved.with_suffix(".py").read_text() == PROGRAM


def test_what_does_not_fail_here_ends_with_1(
    answer: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    answer(Minification("not_reproduced", 25, 25, why="here the graph passes"), None)
    assert main(["repro", "minify", "repro.py"]) == 1
    assert capsys.readouterr().out == "here the graph passes.\n"


def test_json_has_the_answer_and_the_program(
    answer: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    answer(SMALLEST)
    assert main(["repro", "minify", "repro.py", "--json"]) == 0
    body = json.loads(capsys.readouterr().out)
    assert body["program"] == PROGRAM and body["answer"]["operations"] == ["aten.erf.default"]


def test_no_resume_forgets_what_was_answered(
    answer: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = answer(SMALLEST)
    assert main(["repro", "minify", "repro.py"]) == 0
    log = Path(asked[0]["folder"]) / "queries-2.13.jsonl"
    log.write_text("{}\n")
    assert main(["repro", "minify", "repro.py"]) == 0 and log.exists()
    assert main(["repro", "minify", "repro.py", "--no-resume"]) == 0 and not log.exists()


def test_ctrl_c_names_the_smallest_program_so_far(
    answer: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def work(repro: Any, target: str, options: dict[str, Any], **limits: Any) -> dict[str, Any]:
        (Path(options["folder"]) / "smallest.py").write_text(PROGRAM)
        raise KeyboardInterrupt

    monkeypatch.setattr(repro_search, "run_repro_task", work)
    assert main(["repro", "minify", "repro.py"]) == 130
    message = capsys.readouterr().err
    assert "the same command goes on from here" in message and "smallest.py" in message
