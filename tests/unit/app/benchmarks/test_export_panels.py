"""A model's page: how it exports, what quantization costs, and how it scales."""

from __future__ import annotations

import re
import sqlite3
from dataclasses import replace

import plotly.graph_objects as go
import pytest
from flask.testing import FlaskClient

from compileboard.app.benchmarks.charts import chart_scaling
from compileboard.app.benchmarks.exports import build_distributed, choose_model
from compileboard.app.benchmarks.queries import list_history
from compileboard.app.benchmarks.series import split_series
from compileboard.collectors.contract.events import BenchMeasured, load_event
from tests.tools.make_db import DATA
from tests.unit.app.benched import MLP, add_results
from tests.unit.app.benchmarks.exported import list_distributed, list_exported, list_hostile
from tests.unit.app.clickhouse.published import OpenEngine, on_both_engines

pytestmark = on_both_engines


def read_panel(client: FlaskClient, address: str, panel: str) -> str:
    """Return the text of one panel of a page."""
    answer = client.get(address)
    assert answer.status_code == 200, address
    (section,) = re.findall(rf'<section[^>]*id="{panel}".*?</section>', answer.text, re.DOTALL)
    return " ".join(re.sub("<[^>]*>", " ", section).split())


@pytest.fixture
def suite(store: sqlite3.Connection) -> None:
    add_results(store, "RUN", *list_exported(), *list_distributed())


@pytest.mark.usefixtures("suite")
def test_an_export_that_fails_names_stage_operator_and_the_models_line(client: FlaskClient) -> None:
    panel = read_panel(client, "/models/branchy", "export")
    strict = panel.index("Export, strict")
    assert (
        "GuardOnDataDependentSymNode in export, aten._local_scalar_dense.default, branchy.py:12"
        in panel[:strict]
    )
    assert "if x.mean() &gt; 0:" in panel[:strict]
    assert "Draft export unsound: DATA_DEPENDENT_ERROR at branchy.py:12" in panel[:strict]
    assert "Unsupported in export, branchy.py:12" in panel[strict:]


@pytest.mark.usefixtures("suite")
def test_a_package_has_its_size_times_and_what_another_batch_gives(client: FlaskClient) -> None:
    panel = read_panel(client, "/models/mlp", "export")
    row = panel[panel.index("AOTInductor package") : panel.index("AOT precompile")]
    for text in ("550 ms", "14.2 s", "18.0 ms", "3.21 MB", "1.31×", "3.1e-07"):
        assert text in row
    assert "Batch 33: wrong unchecked, refused with the input check" in row
    assert "second process 5.10 s" in panel


def test_recorded_exports_of_a_model_read_the_same_way(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    lines = (
        (DATA / "bench" / "torch2.13-cpu-mlp-exports.jsonl")
        .read_text(encoding="utf-8")
        .splitlines()
    )
    add_results(
        store,
        "RUN",
        *(event for line in lines if isinstance(event := load_event(line), BenchMeasured)),
    )
    panel = read_panel(client, "/models/mlp", "export")
    assert "11.39 MB 0.63× no interval 4.516e-07" in panel and "148 ms" in panel
    assert "Batch 65: wrong unchecked, refused with the input check" in panel
    matrix = client.get("/api/v1/matrix").get_json()["data"][0]
    assert [column["experiment"] for column in matrix["columns"]] == [
        "export",
        "export_strict",
        "aot_inductor",
        "onnx",
    ]
    assert [cell["state"] for cell in matrix["rows"][0]["cells"]] == ["pass"] * 4


@pytest.mark.usefixtures("suite")
def test_ranks_have_their_times_and_efficiency(client: FlaskClient) -> None:
    panel = read_panel(client, "/models/mlp", "distributed")
    assert re.search(
        r"fsdp2 training · [^%]* 2 measured, slower accuracy: pass 113 ms 58.4 ms 51\.8% 0 ", panel
    )
    assert (
        "ddp, ddp_optimizer, 2 ranks, by rank" in panel
        and "ddp, ddp_optimizer, 3 ranks, by rank" in panel
    )
    assert re.search(r" 0 97\.5 ms 81\.7 ms 0\.473 GB 2 6 2 3", panel)
    assert 'id="scaling-chart"' in client.get("/models/mlp").text


def test_what_became_of_ranks_is_told_with_the_rank_and_a_wrong_gradient(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    add_results(store, "RUN", *list_distributed("local"))
    killed = read_panel(client, "/models/killed", "distributed")
    assert "failed: the model does not load rank 1: killed by SIGKILL" in killed
    wrong = read_panel(client, "/models/unsynchronized", "distributed")
    assert (
        "failed: wrong answer rank 1: gradients are not those of one process" in wrong
        and "1.991" in wrong
    )
    for rest in ("html", "md"):
        report = client.get(f"/runs/RUN/report.{rest}").text
        assert "rank 1: killed by SIGKILL" in report and "Distributed" in report
    rows = client.get("/runs/RUN/report.json").get_json()["distributed"]
    assert [(row["model"], row["way"]) for row in rows][:2] == [
        ("killed", "ddp, ddp_optimizer"),
        ("unsynchronized", "ddp, ddp_optimizer"),
    ]


@pytest.mark.usefixtures("suite")
@pytest.mark.parametrize("rest", ["html", "md", "json"])
def test_a_report_has_both_panels_and_leaves_the_models_line_out_if_asked(
    client: FlaskClient, rest: str
) -> None:
    shown, hidden = (
        client.get(f"/runs/RUN/report.{rest}?source={number}").text for number in (1, 0)
    )
    assert "if x.mean()" in shown or rest == "md"
    assert "if x.mean()" not in hidden
    for text in (
        "branchy.py:12",
        "GuardOnDataDependentSymNode",
        "51.8%" if rest != "json" else '"one_process_latency_ms"',
    ):
        assert text in hidden or text.replace("_", "\\_") in hidden, text


@pytest.mark.usefixtures("suite")
def test_quantization_has_both_errors(client: FlaskClient) -> None:
    panel = read_panel(
        client, "/models/mlp?backend=inductor_quantization=int8dynamic", "quantization"
    )
    assert "1.6%" in panel and "5e-06" in panel
    assert 'id="quantization"' not in client.get("/models/mlp?backend=inductor").text


@pytest.mark.parametrize(
    ("command", "suite", "words"),
    [
        (None, "timm", "--suite timm --only net"),
        (
            "bench --only 'path:/a b/n.py,class:Net' --quick",
            "local",
            "--only 'path:/a b/n.py,class:Net'",
        ),
        ("bench --suite local --only net", "local", None),
        ("bench 'cut", "torchbench", None),
    ],
)
def test_a_command_chooses_the_model_as_it_was_measured(
    command: str | None, suite: str, words: str | None
) -> None:
    assert choose_model(command, suite, "net") == words


def test_what_was_not_measured_names_the_command(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    add_results(store, "RUN", MLP)
    assert "bench --suite builtin --only mlp --export --inference" in client.get("/models/mlp").text
    command = "bench --suite builtin --only mlp --training --ddp --world-size 2"
    assert command in client.get("/models/mlp").text
    assert 'id="scaling-chart"' not in client.get("/models/mlp").text


@pytest.mark.usefixtures("suite")
def test_the_scaling_chart_has_a_line_a_way_from_one_process_on(
    open_engine: OpenEngine, reader: sqlite3.Connection
) -> None:
    results = build_distributed(
        lambda _run_id: reader, split_series(list_history(open_engine(reader), "mlp")), "builtin"
    )
    chart = chart_scaling(results)
    assert chart is not None
    go.Figure(chart.figure)
    lines = {line["name"]: (line["x"], line["y"]) for line in chart.figure["data"]}
    (xs, ys), (_sizes, of_fsdp) = lines["ddp, ddp_optimizer"], lines["fsdp2"]
    assert (xs, [round(y) for y in ys], [round(y) for y in of_fsdp]) == (
        [1, 2, 3],
        [100, 59, 26],
        [100, 52],
    )
    assert chart_scaling(results[-1:]) is None


def test_two_configurations_of_one_way_are_two_lines(
    open_engine: OpenEngine, client: FlaskClient, store: sqlite3.Connection
) -> None:
    recorded = [event for event in list_distributed() if event.backend and "ddp=" in event.backend]
    add_results(
        store,
        "RUN",
        *recorded,
        *(replace(event, device="cuda", hardware="H200") for event in recorded),
    )
    series = split_series(list_history(open_engine(store), "mlp"))
    chart = chart_scaling(build_distributed(lambda _run_id: store, series, "builtin"))
    assert chart is not None and len(chart.figure["data"]) == 2
    assert any(line["name"] == "ddp, ddp_optimizer: H200" for line in chart.figure["data"])
    assert "ddp, ddp_optimizer: H200, 2 ranks, by rank" in read_panel(
        client, "/models/mlp", "distributed"
    )


@pytest.mark.usefixtures("suite")
def test_the_api_has_the_same_panels(client: FlaskClient) -> None:
    branchy = client.get("/api/v1/models/branchy").get_json()["data"]
    assert [export["experiment"] for export in branchy["exports"]][:2] == [
        "export",
        "export_strict",
    ]
    assert branchy["exports"][0]["failure"]["line"] == "branchy.py:12"
    scaled = client.get("/api/v1/models/mlp").get_json()["data"]["distributed"]
    assert [(several["world_size"], len(several["ranks"])) for several in scaled] == [
        (2, 2),
        (3, 3),
        (2, 2),
    ]


def test_facts_of_other_shapes_are_not_recorded(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    add_results(store, "RUN", *list_hostile())
    data = client.get("/api/v1/models/mlp").get_json()["data"]
    export, _onnx = data["exports"]
    assert (export["failure"]["line"], export["draft"], export["batch_check"]) == (None, None, None)
    (several,) = data["distributed"]
    assert (several["gradient_error"], [row["rank"] for row in several["ranks"]]) == (None, [1])
    assert several["eager_modules"] == []


def test_modules_that_ran_eagerly_within_ddp_are_named(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    (event, *_rest) = [event for event in list_distributed() if "ddp=" in (event.backend or "")]
    how = {**event.facts["distributed"], "eager_modules": ["0 (Linear)", "<b>5</b> (LayerNorm)"]}
    add_results(store, "RUN", replace(event, facts={**event.facts, "distributed": how}))
    panel = read_panel(client, "/models/mlp", "distributed")
    assert "not compiled: 0 (Linear), &lt;b&gt;5&lt;/b&gt; (LayerNorm)" in panel
