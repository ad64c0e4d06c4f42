"""Every record of a log is somewhere: an event, a span, a symbol, a file's name or an artifact,
each as often as torch wrote it, for every kind that torch can be made to write on a CPU.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from compileboard.collectors.contract.record_names import EVENTS, SPAN, STRING, SYMBOLS
from tests.tools.observed import PROGRAMS, Workplace, torch_release
from tests.unit.logs.loading import query_value, rows

pytestmark = [pytest.mark.torch, pytest.mark.nightly]

_NAMED = re.compile(r'^V[^\]]*\] \{"(\w+)": ?(?:\{"name": "([^"]*)")?')
# What every torch that is tested writes; a program that wrote less would prove less.
AT_LEAST = {
    *(
        "dynamo_start",
        "compilation_metrics",
        "bwd_compilation_metrics",
        "chromium_event",
        "str",
        "export",
    ),
    *(
        "dynamo_output_graph",
        "dynamo_cpp_guards_str",
        "aot_joint_graph",
        "inductor_output_code",
        "exported_program",
    ),
    *(
        "describe_tensor",
        "create_symbol",
        "create_unbacked_symbol",
        "guard_added_fast",
        "guard_added",
    ),
    *(
        "expression_created",
        "missing_fake_kernel",
        "compiled_autograd_graph",
        "artifact:dynamo_graph_break_reason",
    ),
    *(
        "artifact:recompile_reasons",
        "artifact:dynamo_error",
        "artifact:fx_graph_cache_miss",
        "dump_file",
    ),
    *(
        "artifact:aotautograd_cache_miss",
        "artifact:aot_forward_graph_fw_metadata",
        "artifact:torch_version",
    ),
}


def names_in(folder: Path) -> Counter[str]:
    names: Counter[str] = Counter()
    for log in folder.iterdir():
        for line in log.read_text(encoding="utf-8").splitlines():
            if match := _NAMED.match(line):
                kind, name = match.groups()
                names[f"artifact:{name}" if kind == "artifact" else kind] += 1
    return names


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    if torch_release() < (2, 7):
        pytest.skip("torch has no draft_export")
    workplace = Workplace(tmp_path_factory.mktemp("every"))
    folders = {
        "TORCH_DTRACE": str(workplace.folder / "trace"),
        "TORCHINDUCTOR_CACHE_DIR": str(workplace.folder / "cache"),
    }
    done = workplace.plain(
        PROGRAMS / "every_event.py", env={**folders, "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    )
    assert done.returncode == 0, done.stderr
    done = workplace.collect(
        "import", "--db", str(workplace.database), str(workplace.folder / "trace")
    )
    assert done.returncode == 0, done.stderr
    return workplace


def test_the_program_makes_torch_write_all_that_it_can(workplace: Workplace) -> None:
    assert AT_LEAST - set(names_in(workplace.folder / "trace")) == set()


def test_what_is_no_event_is_an_artifact_as_often_as_torch_wrote_it(workplace: Workplace) -> None:
    written = names_in(workplace.folder / "trace")
    stored = dict(
        tuple(row)
        for row in rows(workplace.database, "select name, count(*) from artifacts group by name")
    )
    no_artifacts = {*SYMBOLS, SPAN, STRING, *EVENTS}
    expected = {
        name.removeprefix("artifact:"): count
        for name, count in written.items()
        if name not in no_artifacts or "_cache_" in name
    }
    assert stored == expected


def test_events_symbols_and_spans_are_as_many_as_torch_wrote(workplace: Workplace) -> None:
    written = names_in(workplace.folder / "trace")
    events = (
        "select count(*) from events where kind not in ('run_started', 'run_ended', "
        "'process_started')"
    )
    assert query_value(workplace.database, events) == sum(
        count for name, count in written.items() if name in EVENTS
    )
    symbols = sum(count for name, count in written.items() if name in SYMBOLS)
    assert query_value(workplace.database, "select count(*) from symbols") == symbols > 0
    # A span is a record of its begin and one of its end; an instant is one record.
    records = (
        "select sum(case when instant = 1 or duration_us is null then 1 else 2 end) from spans"
    )
    assert query_value(workplace.database, records) == written[SPAN]


def test_every_text_fits_its_md5_and_no_line_is_stray(workplace: Workplace) -> None:
    kinds = {row["kind"] for row in rows(workplace.database, "select kind from log_rejects")}
    # draft_export goes on in a second log, which leaves out the file names that the first has.
    assert kinds <= {"unknown_file"}
    assert {row[0] for row in rows(workplace.database, "select distinct state from artifacts")} == {
        "kept",
        "none",
    }
