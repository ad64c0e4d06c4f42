"""The page of source, graphs and kernels: its links, missing and hostile texts."""

from __future__ import annotations

import re
import sqlite3

import pytest
from flask.testing import FlaskClient

from tests.unit.app.artifacts.test_artifact_pages import _add, _find_id, _run
from tests.unit.app.hostile import MARKUP
from tests.unit.app.seed import add_run, insert

CODE = (
    "# AOT ID: ['0_{kind}']\n"
    "def call(args):\n"
    "    # [Provenance debug handles] {kernel}:1\n"
    "    {kernel}(a, out=b)\n"
)


def _add_graph(store: sqlite3.Connection, code: str, **more: str) -> str:
    """Add a compile with a generated code and texts beside it."""
    add_run(store, "R")
    key = insert(
        store,
        "compiles",
        run_id="R",
        process_id="p",
        generation=0,
        compile_id="0/0",
        outcome="compiled",
        started_us=1,
    )
    values = {"compile_key": key, "compile_id": "0/0", "attempt": 0}
    for number, (name, text) in enumerate(more.items()):
        sequence = number + (100 if "tracking" in name else 0)
        _add(store, text, name=name, sequence=sequence, **values)
    address = _add(store, code, name="inductor_output_code", sequence=50, **values)
    return f"{address}/provenance"


def test_page_of_a_recorded_code_links_kernels_to_lines(
    explored_client: FlaskClient, explored_reader: sqlite3.Connection
) -> None:
    run_id = _run(explored_reader)
    number = _find_id(explored_reader, "0/0", "inductor_output_code")
    address = f"/runs/{run_id}/artifacts/{number}"
    assert f'href="{address}/provenance"' in explored_client.get(address).text
    page = explored_client.get(f"{address}/provenance")
    assert page.status_code == 200 and "torch wrote no mapping for this code" in page.text
    lines = set(re.findall(r'id="((?:code|post|pre|source)-L\d+)"', page.text))
    linked = set(re.findall(r'href="#((?:code|post|pre|source)-L\d+)"', page.text))
    assert linked and linked <= lines
    assert f'href="{address}/provenance"' in explored_client.get(f"/runs/{run_id}/directory").text


def test_hostile_text_stays_text(client: FlaskClient, store: sqlite3.Connection) -> None:
    address = _add_graph(
        store,
        CODE.format(kind="inference", kernel="torch.ops.a.b"),
        inductor_post_grad_graph=f"        # File: {MARKUP}:1 in {MARKUP}, code: {MARKUP}\n"
        "        mm = f(x)\n",
        inductor_provenance_tracking_node_mappings='{"cppCodeToPost": {"torch.ops.a.b:1": '
        '["</script><img src=x>", "mm"]}}',
        inductor_provenance_tracking_kernel_stack_traces='{"torch.ops.a.b:1": '
        '["  File \\"<img src=y>\\", line 3, in <script>\\n    <img src=z>\\n"]}',
    )
    page = client.get(address).text
    assert "&lt;img src=x&gt;" in page and "&lt;img src=z&gt;" in page
    assert "<img" not in page and page.count("</script>") == page.count("<script")


@pytest.mark.parametrize(("kind", "panes"), [("inference", 3), ("backward", 2)])
def test_a_pane_without_text_says_why(
    client: FlaskClient, store: sqlite3.Connection, kind: str, panes: int
) -> None:
    page = client.get(_add_graph(store, CODE.format(kind=kind, kernel="extern_kernels.mm"))).text
    assert page.count("torch wrote none for this code.") == panes - 1
    assert "torch wrote no source lines" in page and "extern_kernels.mm" in page


def test_malformed_parts_are_counted_on_the_page(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    more = {"inductor_provenance_tracking_node_mappings": '{"cppCodeToPost": 7}'}
    page = client.get(_add_graph(store, CODE.format(kind="inference", kernel="a.b"), **more)).text
    assert "1 part of torch&#39;s mapping is" in page or "1 part of torch's mapping is" in page


def test_an_artifact_of_no_generated_code_has_no_page(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    other = _add(store, "x", name="dynamo_error")
    answer = client.get(f"{other}/provenance")
    assert answer.status_code == 404 and "belongs to no generated code" in answer.text


def test_a_code_of_two_thousand_kernels_is_cut_in_the_table_alone(
    client: FlaskClient, store: sqlite3.Connection
) -> None:
    calls = "".join(f"    extern_kernels.mm(a{number}, out=b)\n" for number in range(2_000))
    code = f"# AOT ID: ['0_inference']\ndef call(args):\n{calls}"
    page = client.get(_add_graph(store, code)).text
    assert "The first 300 of 2,000 calls." in page and 'id="code-L2002"' in page
