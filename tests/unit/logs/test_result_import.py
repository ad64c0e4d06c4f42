"""Files of benchmark results through `import`: runs, twins, graph breaks, and nothing twice."""

from __future__ import annotations

import io
import json
import lzma
import shutil
import tarfile
from pathlib import Path

import pytest

from compileboard.collectors.cli.import_command import import_paths
from compileboard.collectors.logs.import_progress import ProgressLines
from compileboard.collectors.logs.log_loader import LoadOptions
from compileboard.collectors.logs.streams import NoSuchLog
from compileboard.collectors.store.migrations import migrate
from compileboard.exit_codes import FAILED
from tests.unit.formats.files import HEAD, MADE, RECORDED
from tests.unit.logs.loading import PROGRAMS, query_value, rows

HEADING = "dev,name,batch_size,speedup,abs_latency\n"
NAME = "inductor_torchbench_amp_training_cuda_performance.csv"


def run_import(
    database: Path, *paths: Path, strict: bool = False, **options: object
) -> tuple[int, list[str]]:
    lines: list[str] = []
    asked = LoadOptions(**options)  # type: ignore[arg-type]
    code = import_paths(
        [str(path) for path in paths],
        str(database),
        asked,
        print_line=lines.append,
        strict=strict,
        index=False,
    )
    return code, lines


def write(folder: Path, name: str, text: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    return folder


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "t.db"


def test_a_folder_of_upstreams_becomes_one_run_and_again_adds_nothing(store: Path) -> None:
    code, lines = run_import(store, RECORDED)
    assert code == 0 and "6 results and 10 graph breaks of 14 files" in lines[0]
    known = [
        tuple(row)
        for table in ("results", "graph_breaks", "processes")
        for row in rows(store, f"select * from {table}")
    ]
    assert "nothing new" in run_import(store, RECORDED)[1][0]
    assert [
        tuple(row)
        for table in ("results", "graph_breaks", "processes")
        for row in rows(store, f"select * from {table}")
    ] == known
    (run,) = rows(store, "select source, state, name from runs")
    assert tuple(run) == ("import", "imported", "recorded")


def test_the_numbers_are_the_jsons_and_a_failure_has_the_word_of_its_accuracy(store: Path) -> None:
    run_import(store, RECORDED)
    sql = (
        "select {} from results join series on series.id = series_id where experiment = "
        "'performance' and model = :m"
    )
    assert query_value(store, sql.format("speedup"), m="Breaky") == 0.5874513480871489
    (failed,) = rows(
        store, sql.format("status, reason, speedup, graph_breaks, batch_size"), m="WrongAnswer"
    )
    assert tuple(failed) == ("failed", "fail_to_run", None, None, 8)
    facts = json.loads(query_value(store, sql.format("facts"), m="Breaky"))
    assert facts["phases_s"]["_compile.compile_inner"] > 1 and facts["settings"]["repeat"] == 20


def test_breaks_hang_on_the_result_of_their_file_and_are_those_the_hooks_name(store: Path) -> None:
    run_import(store, RECORDED)
    sql = """
    select experiment, count(*) as break_count, count(distinct distinct_id) as distinct_count
    from results join processes using (task) join graph_breaks
      on graph_breaks.process_id = processes.id
    group by experiment order by experiment
    """
    assert [tuple(row) for row in rows(store, sql)] == [("accuracy", 5, 4), ("performance", 5, 4)]
    sql = (
        "select gb_id, file, name from distinct_breaks join functions on functions.id = "
        "function_id order by line"
    )
    recorded = [tuple(row) for row in rows(store, sql)]
    assert (
        recorded[0] == ("GB0059", "bench_models.py", "forward")
        and ("GB0124", "bench_models.py", "forward") in recorded
    )


def test_a_stem_that_rstrip_ate_still_finds_its_table(store: Path) -> None:
    run_import(store, MADE)
    sql = (
        "select model from results join series on series.id = series_id join processes using (task)"
    )
    assert [row[0] for row in rows(store, sql)] == ["mlp"]
    sql = (
        "select eager_latency_ms, (select count(*) from result_repeats where result_id = "
        "results.id) as repeat_count"
    )
    (row,) = rows(store, f"{sql} from results where task = 'basics/mlp'")
    assert tuple(row) == (1.0, 2)


def test_a_longer_copy_adds_what_is_new_even_if_padding_changed_its_first_rows(
    store: Path, tmp_path: Path
) -> None:
    folder = write(tmp_path / "out", NAME, HEADING + "cuda,a,8,1.500000,2.500000\n")
    run_import(store, folder)
    longer = (
        HEADING.replace("\n", ",graph_breaks\n")
        + "cuda,a,8,1.500000,2.500000,0\ncuda,b,8,1.200000,2.000000,3\n"
    )
    _code, lines = run_import(store, write(folder, NAME, longer))
    assert "1 new result of 1 file" in lines[0]
    assert (
        query_value(store, "select count(*) from runs") == 1
        and query_value(store, "select count(*) from results") == 2
    )


def test_two_nights_are_two_runs_although_their_verdicts_are_the_same(
    store: Path, tmp_path: Path
) -> None:
    accuracy = "dev,name,batch_size,accuracy\ncuda,a,8,pass\n"
    for night, speedup in (("monday", 1.5), ("tuesday", 1.4)):
        folder = write(tmp_path / night, NAME, HEADING + f"cuda,a,8,{speedup:.6f},2.500000\n")
        write(folder, NAME.replace("performance", "accuracy"), accuracy)
    run_import(store, tmp_path / "monday")
    run_import(store, tmp_path / "tuesday")
    counts = rows(store, "select count(*) from results group by run_id")
    assert [row[0] for row in counts] == [2, 2]
    both = tmp_path / "both.db"
    run_import(both, tmp_path)  # the folder above has each name twice: two nights
    assert query_value(both, "select count(*) from runs") == 2


def test_rows_that_name_commits_become_a_run_of_each(store: Path, tmp_path: Path) -> None:
    run_import(store, MADE / "hud_export.csv")
    told = "git_commit, git_branch, gpu_name, result_count"
    recorded = rows(
        store, f"select {told} from runs join run_totals on run_id = id order by started_us"
    )
    assert [tuple(row) for row in recorded] == [
        ("a" * 40, "main", "h100", 4),
        ("b" * 40, "main", "h100", 4),
    ]
    lines = (MADE / "hud_export.csv").read_text().splitlines()
    moved = write(
        tmp_path / "later",
        "hud_export.csv",
        "\n".join([lines[0], *lines[3:], lines[3].replace("resnet18", "vgg16")]),
    )
    run_import(store, moved)
    assert (
        query_value(store, "select count(*) from results") == 10
        and query_value(store, "select count(*) from runs") == 2
    )


def test_an_archive_with_logs_and_results_gives_both(store: Path, tmp_path: Path) -> None:
    folder = tmp_path / "all"
    shutil.copytree(MADE, folder)
    with tarfile.open(PROGRAMS) as archive:
        name = next(
            name
            for name in archive.getnames()
            if "zoo_graph_breaks/trace/" in name and name.endswith(".log")
        )
        (folder / "trace.log").write_bytes(archive.extractfile(name).read())  # type: ignore[union-attr]
    packed = tmp_path / "all.tar.xz"
    with tarfile.open(packed, "w:xz") as archive:
        archive.add(folder, "all")
    code, lines = run_import(store, packed)
    assert code == 0 and query_value(store, "select count(*) from compiles") > 0
    assert query_value(store, "select count(*) from results") == 31, lines
    assert any("passrate.csv" in line for line in lines)


def test_damage_is_said_with_its_line_and_shown_on_the_run(store: Path, tmp_path: Path) -> None:
    folder = write(
        tmp_path / "out", NAME, HEADING + "cuda,a,8,1.5,2.5\ncuda,b,8\ncuda,c,8,1.5,2.5\n"
    )
    code, lines = run_import(store, folder, strict=True)
    assert code == FAILED and any(f"first at line 3 of {NAME}" in line for line in lines)
    assert query_value(store, "select count(*) from results") == 2
    run_import(store, folder)
    (row,) = rows(
        store,
        "select kind, reject_count, first_line, name from log_rejects join logs using (process_id)",
    )
    assert tuple(row) == ("bad_row", 1, 3, NAME)


def test_options_name_the_run_and_give_the_suite_where_no_column_does(
    store: Path, tmp_path: Path
) -> None:
    folder = write(tmp_path / "out", "inductor.csv", HEADING + "cuda,a,8,1.5,2.5\n")
    run_import(store, folder, name="nightly", suite="ours", tags={"gpu": "h200"})
    assert tuple(rows(store, "select name, suite from runs")[0]) == ("nightly", "ours")
    assert (
        query_value(store, "select suite from series") == "ours"
        and query_value(store, "select value from run_tags") == "h200"
    )


def test_a_deleted_run_stays_deleted_until_again(store: Path) -> None:
    from compileboard.collectors.store.connection import open_writer
    from compileboard.collectors.store.trash import delete_run

    run_import(store, MADE / "basics.csv")
    connection = open_writer(store)
    delete_run(connection, query_value(store, "select id from runs"))
    connection.close()
    assert "--again" in run_import(store, MADE / "basics.csv")[1][0]
    run_import(store, MADE / "basics.csv", again=True)
    assert query_value(store, "select count(*) from results") == 1


def test_a_table_of_something_else_is_refused_with_what_was_expected(
    store: Path, tmp_path: Path
) -> None:
    folder = write(tmp_path / "out", "prices.csv", "fruit,price\napple,1\n")
    with pytest.raises(NoSuchLog, match="expected a table with a column `name`"):
        run_import(store, folder / "prices.csv")
    with pytest.raises(NoSuchLog, match="none of the 1 files"):
        run_import(store, folder)


def test_a_cut_archive_member_keeps_what_came_before(store: Path, tmp_path: Path) -> None:
    name = HEAD.format("Breaky", "performance") + ".json.xz"
    text = lzma.decompress((RECORDED / name).read_bytes())
    (tmp_path / "x.json").write_bytes(text[: len(text) // 2])
    run_import(store, tmp_path / "x.json")
    assert query_value(store, "select speedup from results") == 0.5874513480871489
    assert query_value(store, "select kind from log_rejects") == "truncated"


def accuracy_of(count: int, failed: int | None = None) -> str:
    verdicts = ["fail_accuracy" if number == failed else "pass" for number in range(count)]
    return "dev,name,batch_size,accuracy\n" + "".join(
        f"cuda,m{at},8,{verdict}\n" for at, verdict in enumerate(verdicts)
    )


def test_a_file_that_differs_far_down_is_another_run_and_each_is_known_again(
    store: Path, tmp_path: Path
) -> None:
    name = NAME.replace("performance", "accuracy")
    write(tmp_path / "a", name, accuracy_of(90))
    write(tmp_path / "b", name, accuracy_of(90, failed=60))
    for folder in "ab":
        assert "90 results" in run_import(store, tmp_path / folder)[1][0]
    for folder in "ab":
        assert "nothing new" in run_import(store, tmp_path / folder)[1][0]
    write(tmp_path / "b", name, accuracy_of(95, failed=60))
    assert "5 new results" in run_import(store, tmp_path / "b")[1][0]
    sql = "select count(*), sum(accuracy <> 'pass') from results group by run_id order by count(*)"
    assert [tuple(row) for row in rows(store, sql)] == [(90, 0), (95, 1)]


def test_a_verdict_that_changed_beside_the_same_times_is_not_lost(
    store: Path, tmp_path: Path
) -> None:
    for folder, failed in (("a", None), ("b", 60)):
        write(tmp_path / folder, NAME, HEADING + "cuda,m0,8,1.500000,2.500000\n")
        write(tmp_path / folder, NAME.replace("performance", "accuracy"), accuracy_of(90, failed))
        assert "91 results" in run_import(store, tmp_path / folder)[1][0]
    assert query_value(store, "select count(*) from runs") == 2
    assert "nothing new" in run_import(store, tmp_path / "b")[1][0]


def test_a_subfolder_with_the_same_names_is_a_run_of_its_own_and_one_file_draws_none_to_it(
    store: Path, tmp_path: Path
) -> None:
    text = "name,accuracy,graph_breaks\n" + "".join(f"m{number},pass,0\n" for number in range(30))
    folder = write(tmp_path / "expected", "inductor_timm_training.csv", text)
    write(folder, "inductor_torchbench_training.csv", text)
    write(
        folder / "cu124",
        "inductor_timm_training.csv",
        text.replace("m20,pass", "m20,fail_to_run") + "m30,pass,2\n",
    )
    run_import(store, folder / "inductor_timm_training.csv")
    _code, lines = run_import(store, folder)
    recorded = rows(
        store,
        "select name, result_count from runs join run_totals on run_id = id order by result_count",
    )
    assert [tuple(row) for row in recorded] == [
        ("inductor_timm_training.csv", 30),
        ("expected/cu124", 31),
        ("expected", 60),
    ]
    assert any("was imported by itself before, as run" in line for line in lines)
    again = run_import(store, folder)[1]
    assert sum("nothing new" in line for line in again) == 2 and len(again) == 2


def test_a_folder_of_rows_with_and_without_commits_is_known_again(
    store: Path, tmp_path: Path
) -> None:
    folder = write(tmp_path / "mixed", NAME, HEADING + "cuda,a,8,1.500000,2.500000\n")
    shutil.copy(MADE / "hud_export.csv", folder)
    run_import(store, MADE / "hud_export.csv")
    run_import(store, folder)
    again = run_import(store, folder)[1]
    assert len(again) == 3 and all("nothing new" in line for line in again), again


def test_who_reads_the_lines_is_told_which_file_is_damaged(store: Path, tmp_path: Path) -> None:
    folder = write(tmp_path / "out", NAME, HEADING + "cuda,a,8,1.5,2.5\n")
    write(folder, "basics.csv", HEADING + "cuda,b,8,1.5,2.5\ncuda,c,8\n")
    out = io.StringIO()
    migrate(store)
    import_paths(
        [str(folder)],
        str(store),
        LoadOptions(),
        print_line=lambda _it: None,
        index=False,
        lines=ProgressLines(out),
    )
    done = json.loads(out.getvalue().splitlines()[-1])
    assert done["rejects"] == {"bad_row": 1} and done["remarks"][-1].endswith(
        "first at line 3 of basics.csv"
    )
