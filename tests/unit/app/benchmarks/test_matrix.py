"""The matrix of a suite: models by experiments, a state a cell, a link to its failure."""

from __future__ import annotations

import re
import sqlite3

import pytest
from flask.testing import FlaskClient

from tests.unit.app.benched import ACCURACY, HOSTILE, MLP, add_results, measure
from tests.unit.app.benchmarks.exported import MODELS, list_distributed, list_exported, list_hostile
from tests.unit.app.clickhouse.published import on_both_engines
from tests.unit.app.server.test_hostile_text import _Seen

pytestmark = on_both_engines


@pytest.fixture
def suite(store: sqlite3.Connection) -> None:
    add_results(store, "RUN", *list_exported(), *list_distributed())


def read_cells(page: str) -> dict[tuple[str, str], str]:
    """Return the text of each cell by model and column."""
    cells = {}
    for row in page.split('<th scope="row" class="results__model">')[1:]:
        model = re.sub("<[^>]*>", "", row.partition("</th>")[0])
        for label, cell in re.findall('<td[^>]*data-label="([^"]*)">(.*?)</td>', row, re.DOTALL):
            cells[model, label] = " ".join(re.sub("<[^>]*>", "", cell).split())
    return cells


@pytest.mark.usefixtures("suite")
@pytest.mark.parametrize("address", ["/models", "/runs/RUN/results"])
def test_each_experiment_of_each_configuration_is_a_column_with_its_state(
    client: FlaskClient, address: str
) -> None:
    cells = read_cells(client.get(address).text)
    assert {model for model, _column in cells} == set(MODELS)
    assert (
        cells["mlp", "inference · AMD EPYC 9654 · inductor, Performance"]
        == "faster 1.25× (1.21–1.29)"
    )
    assert cells["mlp", "inference · AMD EPYC 9654 · inductor, Accuracy"] == "pass"
    assert (
        cells["mlp", "inference · AMD EPYC 9654 · inductor, Caching precompile"]
        == "measured second process 5.1 s"
    )
    assert (
        cells["mlp", "inference · AMD EPYC 9654, AOTInductor package"]
        == "pass 1.31× (1.28–1.34) · 3.21 MB"
    )
    assert (
        cells["branchy", "inference · AMD EPYC 9654, Export, non-strict"] == "failed: does not run"
    )
    ranks = "training · Intel(R) Xeon(R) Processor · aot_eager · quick · FSDP2 · 2 ranks"
    assert (
        cells["mlp", f"{ranks}, Performance"]
        == "measured, slower 0.935×, no interval · efficiency 51.8%"
    )
    assert cells["mlp", f"{ranks}, Accuracy"] == "pass"
    assert cells["conv", f"{ranks}, Performance"] == "not measured"


@pytest.mark.usefixtures("suite")
def test_a_cell_leads_to_its_failure(client: FlaskClient) -> None:
    page = client.get("/models").text
    (address,) = re.findall('href="([^"]*backend=export&[^"]*#failure-[^"]*)"', page)
    address, _mark, anchor = address.replace("&amp;", "&").partition("#")
    failure = client.get(address)
    assert failure.status_code == 200 and f'id="{anchor}"' in failure.text
    assert "GuardOnDataDependentSymNode" in failure.text


@pytest.mark.usefixtures("suite")
def test_a_filter_by_status_leaves_the_models_with_all_their_experiments(
    client: FlaskClient,
) -> None:
    cells = read_cells(client.get("/models?status=failed").text)
    assert {model for model, _column in cells} == {"branchy"}
    assert cells["branchy", "inference · AMD EPYC 9654 · inductor, Accuracy"] == "pass"
    assert "No models match" in client.get("/models?status=not_run").text
    wrong = read_cells(client.get("/models?accuracy=fail").text)
    assert {model for model, _column in wrong} == {"branchy"}


@pytest.mark.usefixtures("suite")
def test_filters_narrow_to_one_configurations_numbers_and_a_view_is_asked_for(
    client: FlaskClient,
) -> None:
    assert 'id="configuration-1"' in client.get("/models?backend=aot_inductor").text
    chosen = client.get("/models?backend=aot_eager_quick_ddp%3Dddp_optimizer").text
    assert "selected>aot_eager · quick · DDP ddp_optimizer</option>" in chosen
    assert "</span> aot_eager · quick · DDP ddp_optimizer" in chosen  # the chip
    ranks = client.get("/models?world_size=3&backend=aot_eager_quick_ddp=ddp_optimizer").text
    assert 'id="configuration-1"' in ranks and 'id="configuration-2"' not in ranks
    assert set(read_cells(client.get("/models?experiment=export&view=matrix").text)) == {
        (model, "exports, Export, non-strict") for model in MODELS
    }
    assert 'id="matrix-1"' not in client.get("/models?view=numbers").text
    assert [
        client.get(f"/models?{query}").status_code
        for query in ("view=odd", "dynamic=odd", "world_size=x")
    ] == [400] * 3


@pytest.mark.usefixtures("suite")
def test_a_matrix_is_paged_by_models_the_worst_first(client: FlaskClient) -> None:
    page = client.get("/models?limit=3").text
    assert next(iter(read_cells(page)))[0] == "branchy"
    following = client.get(
        re.findall('rel="next" href="([^"]+)"', page)[0].replace("&amp;", "&")
    ).text
    models = {model for part in (page, following) for model, _column in read_cells(part)}
    assert models == set(MODELS) and len({model for model, _column in read_cells(following)}) == 1


def test_one_configuration_is_shown_as_numbers_and_batch_sizes_are_told_apart(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    add_results(
        store, "RUN", MLP, measure(**ACCURACY), measure(batch_size=64, values={"speedup": 2.0})
    )
    assert 'id="matrix-1"' not in client.get("/models").text
    cells = read_cells(client.get("/models?view=matrix").text)
    assert (
        cells["mlp", "inductor, Performance"]
        == "faster 1.25× (1.21–1.29) batch 8 measured 2×, no interval batch 64"
    )


def test_other_peoples_text_stays_text(client: FlaskClient, store: sqlite3.Connection) -> None:
    add_results(store, "RUN", *list_hostile())
    for address in (
        "/models",
        "/models/mlp",
        "/runs/RUN/results",
        "/models/mlp?backend=export",
        "/models/mlp?world_size=2",
    ):
        seen = _Seen(client.get(address).text)
        assert [tag for tag, attributes in seen.tags if "onclick" in attributes] == [], address
    assert HOSTILE not in client.get("/models").text


def test_a_larger_package_makes_a_model_worse_as_check_has_it(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    package = {
        "experiment": "aot_inductor",
        "backend": "aot_inductor",
        "accuracy": "pass",
        "repeats": {},
    }
    for number, size in enumerate((3e6, 4.5e6)):
        event = measure(**package, values={"package_bytes": size})
        add_results(store, f"R{number}", event, started_us=MLP.time_us + number * 10**9)
    text = " ".join(re.sub("<[^>]*>", " ", client.get("/compare?base=R0&new=R1").text).split())
    assert "worse mlp package size 3 MB → 4.5 MB (+50%)" in text


def test_runs_without_a_common_model_are_not_said_to_be_alike(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    add_results(store, "R0", measure(model="a"))
    add_results(store, "R1", measure(model="b"), started_us=MLP.time_us + 10**9)
    assert "No model was measured on both sides" in client.get("/compare?base=R0&new=R1").text


def test_a_model_that_was_measured_otherwise_names_the_setting(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    for number, mode in enumerate(("ddp_optimizer", "no_optimization")):
        event = measure(backend=f"inductor_quick_ddp={mode}")
        add_results(store, f"R{number}", event, started_us=MLP.time_us + number * 10**9)
    page = client.get("/compare?base=R0&new=R1").text
    sentence = (
        "No model was measured alike on both sides: mlp DDP ddp_optimizer → DDP no_optimization"
    )
    assert (
        sentence in page
        and "environment unchanged" not in page
        and "No change beyond noise" not in page
    )


def test_a_slower_first_call_of_a_second_process_is_told(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    for number, latency_s in enumerate((3.0, 6.0)):
        repeats = {"second_process_s": [latency_s, latency_s * 1.01, latency_s * 0.99]}
        event = measure(
            experiment="caching_precompile",
            values={"second_process_latency": latency_s},
            repeats=repeats,
        )
        add_results(store, f"R{number}", MLP, event, started_us=MLP.time_us + number * 10**9)
    page = client.get("/compare?base=R0&new=R1").text
    assert "first call in a second process 3 s → 6 s (+100%)" in page
