"""Real logs of eight programs and of two ranks on H200s, against what torch's own Python API said
at their ends.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.unit.logs.loading import DDP, PROGRAMS, load, query_value, rows

NAMES = ["zoo_graph_breaks", "zoo_recompiles", "zoo_backend_failure", "hf_GPT2", "hf_Bert_train"]
NAMES += ["hf_Llama_dynamic", "hf_T5", "tv_resnet18"]
# What the programs were written to do (tests/data/captures): the log has more break events than
# counters count.
BREAK_EVENTS = {"zoo_graph_breaks": 8, "hf_T5": 7}
RECOMPILES = {"zoo_recompiles": 8, "hf_Llama_dynamic": 2}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("captures") / "t.db"
    assert load(path, PROGRAMS).rejects.total == 0
    return path


@pytest.fixture(scope="module")
def ddp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ddp") / "t.db"
    assert load(path, DDP).log_count == 2
    return path


@pytest.fixture(scope="module")
def results() -> dict[str, dict[str, Any]]:
    with tarfile.open(PROGRAMS) as archive:
        members = [member for member in archive if member.name.endswith("result.json")]
        return {m.name.split("/")[-2]: json.load(archive.extractfile(m)) for m in members}  # type: ignore[arg-type]


def process(store: Path, name: str) -> str:
    return str(
        query_value(
            store, "select process_id from logs where name like :like", like=f"%{name}/trace/%"
        )
    )


@pytest.mark.parametrize("name", NAMES)
def test_every_compilation_record_is_there_with_torchs_own_numbers(
    store: Path, results: dict[str, dict[str, Any]], name: str
) -> None:
    sql = (
        "select compile_id, kind, duration_us, guard_count from compilations where process_id "
        "= :id order by sequence"
    )
    recorded = [tuple(row) for row in rows(store, sql, id=process(store, name))]
    metrics = results[name]["metrics"]
    assert len(recorded) == len(metrics)
    expected = sorted(
        (m["compile_id"] or "", m["duration_us"] or 0, m["guard_count"] or 0) for m in metrics
    )
    assert sorted((row[0] or "", row[2] or 0, row[3] or 0) for row in recorded) == expected


@pytest.mark.parametrize("name", NAMES)
def test_breaks_recompiles_and_graphs_agree_with_the_counters(
    store: Path, results: dict[str, dict[str, Any]], name: str
) -> None:
    key = {"id": process(store, name)}
    counters = results[name]["counters"]
    breaks = query_value(store, "select count(*) from graph_breaks where process_id = :id", **key)
    assert breaks == BREAK_EVENTS.get(name, 0) >= sum(counters.get("graph_break", {}).values())
    assert query_value(
        store, "select count(*) from recompiles where process_id = :id", **key
    ) == RECOMPILES.get(name, 0)
    graphs = (
        "select count(distinct compile_key) from artifacts where process_id = :id and name = "
        "'dynamo_output_graph'"
    )
    assert query_value(store, graphs, **key) >= counters["stats"].get("unique_graphs", 0)


def test_everything_of_a_log_finds_its_compile_and_every_span_its_end(store: Path) -> None:
    assert query_value(store, "select count(*) from artifacts where compile_key is null") == 0
    assert (
        query_value(
            store, "select count(*) from spans where compile_key is null and compile_id is not null"
        )
        == 0
    )
    assert query_value(store, "select count(*) from spans where duration_us is null") == 0
    assert (
        query_value(store, "select count(*) from artifacts where state not in ('kept', 'none')")
        == 0
    )
    # torch says no compile's guards take no time, and every compile that has guards has them summed
    # up.
    assert (
        query_value(
            store, "select count(*) from guard_sets where guard_count < 1 or latency_us <= 0"
        )
        == 0
    )


def test_rank_1_recompiled_and_rank_0_did_not(ddp: Path) -> None:
    sql = """
    select rank, compiles.compile_id, reason
    from recompiles
    join compiles on compiles.id = compile_key
    """
    reasons = {(row["compile_id"], row["rank"]): row["reason"] for row in rows(ddp, sql)}
    assert {rank for compile_id, rank in reasons if (compile_id, 1 - rank) not in reasons} == {1}
    assert reasons["0/1", 1] == "tensor 'args[0]' size mismatch at index 1. expected 128, actual 96"


def test_versions_gpus_and_the_program_are_read_from_the_logs(ddp: Path) -> None:
    (run,) = rows(
        ddp,
        "select name, state, source, torch_version, cuda_version, gpu_name, gpu_count from runs",
    )
    assert tuple(run) == (
        "train_ddp.py",
        "imported",
        "import",
        "2.11.0+cu130",
        "13.0",
        "NVIDIA H200",
        2,
    )
