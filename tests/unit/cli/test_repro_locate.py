"""`repro analyze` and `repro bisect`: output, stored rows, exit codes; nothing is compiled."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from compileboard.collectors.cli.main import main
from compileboard.collectors.repro import findings
from compileboard.collectors.repro.findings import (
    Analysis,
    Bisection,
    JudgedNode,
    TriedSetting,
)
from tests.tools.observed import ROOT

RECORDED = Path(__file__).parents[2] / "data" / "repros" / "dynamic_pad.txt"
WRONG = JudgedNode(
    "atan",
    "aten.atan.default",
    verdict=findings.WRONG,
    error=0.01,
    eager_error=2.7e-8,
    limit=1.1e-6,
    explains=True,
    source="model.py:7",
)
RIGHT = JudgedNode("mul", "aten.mul.Tensor", error=2e-8, eager_error=2e-8, limit=1.1e-6)
NAMED = Analysis(
    findings.NAMED,
    "aten.atan.default",
    "atan",
    cause=findings.COMPILER,
    explains=True,
    failure="differs from eager",
    rows=(WRONG, RIGHT),
    judged_count=2,
    compile_count=3,
)


@pytest.fixture
def answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Work in a folder with a script of torch's, where a task answers what a test says."""
    monkeypatch.chdir(tmp_path)
    shutil.copyfile(RECORDED, tmp_path / "repro.py")
    asked: dict[str, Any] = {}

    def work(repro: Any, target: str, options: dict[str, Any], **limits: Any) -> dict[str, Any]:
        asked.update(target=target, options=options, limits=limits)
        return dict(asked["answer"])

    monkeypatch.setattr("compileboard.collectors.cli.repro_search.run_repro_task", work)
    return asked


def test_the_command_itself_loads_no_torch() -> None:
    program = (
        "import sys, compileboard.collectors.cli.repro_search, "
        "compileboard.collectors.repro.findings; "
    )
    program += "sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, timeout=60).returncode == 0


def test_the_wrong_operation_is_printed_with_its_error_beside_eagers(
    answers: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    answers["answer"] = NAMED.dump()
    assert main(["repro", "analyze", "repro.py"]) == 0
    head, table, row, counts = capsys.readouterr().out.splitlines()
    assert head == "aten.atan.default: error 0.01, eager 2.7e-08."
    assert row.split() == [
        "atan",
        "aten.atan.default",
        "wrong",
        "0.01",
        "2.7e-08",
        "1.1e-06",
        "yes",
        "model.py:7",
    ]
    assert (
        counts == "2 operations judged, 0 random, 0 not judged, 3 compiles" and "explains" in table
    )
    stored = json.loads(next(Path("repro.py.repro").glob("analyze-*.json")).read_text())
    assert (stored["status"], stored["operation"]) == ("named", "aten.atan.default")


@pytest.mark.parametrize(
    ("analysis", "code", "text"),
    [
        (
            Analysis(findings.NOT_REPRODUCED, failure="passes"),
            1,
            "Not reproduced: the graph passes here",
        ),
        (
            Analysis(
                findings.ONLY_FUSED,
                "aten.mul.Tensor",
                operations=("aten.atan.default", "aten.mul.Tensor"),
            ),
            0,
            "Wrong only when fused: aten.atan.default → aten.mul.Tensor.",
        ),
        (Analysis(findings.UNEXPLAINED, failure="differs from eager"), 1, "No operation is named"),
        (
            Analysis(findings.NAMED, "aten.relu.default", failure="CppCompileError: x"),
            0,
            "aten.relu.default fails: Cpp",
        ),
    ],
)
def test_each_answer_has_its_sentence_and_exit_code(
    answers: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
    analysis: Analysis,
    code: int,
    text: str,
) -> None:
    answers["answer"] = analysis.dump()
    assert main(["repro", "analyze", "repro.py", "--memory", "2G", "--level", "aot"]) == code
    assert text in capsys.readouterr().out
    assert answers["options"] == {"level": "aot", "strict": False, "memory_bytes": 2 << 30}


def test_bisect_prints_the_lowering_or_the_settings_that_help(
    answers: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    lowering = Bisection(
        findings.NAMED, "inductor", "lowerings", 7, "aten.atan.default", "atan", trial_count=19
    )
    answers["answer"] = lowering.dump()
    assert main(["repro", "bisect", "repro.py"]) == 0
    assert (
        capsys.readouterr().out
        == "inductor, lowerings, application 7: aten.atan.default.\n19 trials\n"
    )
    tried = (TriedSetting("epilogue_fusion", "False", True), TriedSetting("cpp.threads", "1", None))
    setting = Bisection(
        findings.NAMED, "inductor", "setting", application="epilogue_fusion=False", settings=tried
    )
    answers["answer"] = setting.dump()
    assert main(["repro", "bisect", "repro.py", "--json"]) == 0
    assert findings.Bisection.load(json.loads(capsys.readouterr().out)) == setting
    assert main(["repro", "bisect", "repro.py"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "It passes with epilogue_fusion=False."
    assert [line.split() for line in shown[2:4]] == [
        ["epilogue_fusion", "False", "passes"],
        ["cpp.threads", "1", "fails", "otherwise"],
    ]
