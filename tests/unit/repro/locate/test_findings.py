import json
import math

from hypothesis import given
from hypothesis import strategies as st

from compileboard.collectors.repro import findings
from compileboard.collectors.repro.findings import (
    Analysis,
    Bisection,
    JudgedNode,
    TriedSetting,
)

ROWS = st.builds(
    JudgedNode,
    node=st.text(),
    operation=st.text(),
    verdict=st.sampled_from([findings.RIGHT, findings.WRONG, findings.NOT_FINITE, findings.RANDOM]),
    error=st.none() | st.floats(0, 10),
    limit=st.none() | st.floats(0, 10),
    not_finite_count=st.integers(0, 9),
    shape=st.none() | st.tuples(st.integers(0, 9)),
    explains=st.sampled_from([None, True, False]),
)


@given(st.lists(ROWS, max_size=6), st.sampled_from(findings.STATUSES))
def test_an_analysis_is_read_back_from_its_json(rows, status):
    analysis = Analysis(
        status, rows=tuple(findings.sort_rows(rows)), notes=("a note",), nodes=("mul", "atan")
    )
    body = json.loads(json.dumps(analysis.dump(), allow_nan=False))
    assert findings.Analysis.load(body | {"of_a_newer_version": 1}) == analysis


def test_numbers_that_json_has_not_and_defaults_are_left_out():
    row = JudgedNode(
        "tanh", "aten.tanh.default", verdict=findings.NOT_FINITE, error=math.inf, not_finite_count=3
    )
    (body,) = Analysis(findings.NAMED, rows=(row,)).dump()["rows"]
    assert body == {
        "node": "tanh",
        "operation": "aten.tanh.default",
        "verdict": "not_finite",
        "not_finite_count": 3,
    }


def test_wrong_rows_come_first_and_the_rest_of_many_is_counted():
    right = [
        JudgedNode(f"n{number}", "aten.mul.Tensor", error=number / 1e6, limit=1.0)
        for number in range(300)
    ]
    wrong = JudgedNode("late", "aten.erf.default", verdict=findings.WRONG, error=2.0, limit=1.0)
    explaining = JudgedNode(
        "atan", "aten.atan.default", verdict=findings.WRONG, error=1.1, limit=1.0, explains=True
    )
    body = Analysis(findings.NAMED, rows=(*right, wrong, explaining)).dump()
    assert [row["node"] for row in body["rows"][:3]] == ["atan", "late", "n299"]
    assert len(body["rows"]) == findings.MAX_ROWS and body["left_out_count"] == 102


def test_a_bisection_is_read_back_from_its_json():
    tried = (
        TriedSetting("epilogue_fusion", "False", True, seconds=1.5),
        TriedSetting("freezing", "False", None),
    )
    bisection = Bisection(
        findings.NAMED, "inductor", "lowerings", 7, "aten.atan.default", settings=tried
    )
    assert findings.Bisection.load(json.loads(json.dumps(bisection.dump()))) == bisection


def test_every_wrong_operation_is_named_and_the_one_that_an_error_names():
    rows = tuple(
        JudgedNode(name, f"aten.{name}.default", verdict=findings.WRONG, error=0.02)
        for name in ("rsqrt", "log1p")
    )
    analysis = Analysis(findings.NAMED, "aten.rsqrt.default", "rsqrt", rows=rows)
    assert analysis.sentence().endswith("; aten.log1p.default too")
    bisection = Bisection(findings.UNEXPLAINED, operation="mine.halve.default", failure="x")
    assert bisection.sentence().endswith("the error itself names mine.halve.default")
