"""Damage is counted with its line, the rest of the file is read, and nothing raises."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compileboard.collectors.contract.rejects import KINDS
from compileboard.collectors.formats.reader import read_results
from tests.unit.formats.files import HEAD, MADE, RECORDED, read_text

HEADING = "dev,name,batch_size,speedup,abs_latency\n"
GOOD = "cpu,mlp,8,1.500000,2.500000\n"
WHOLE = [
    path
    for folder in (RECORDED, MADE)
    for path in sorted(folder.iterdir())
    if path.suffix in (".csv", ".json", ".npy")
]


@pytest.mark.parametrize(
    ("text", "kind", "line"),
    [
        (HEADING + "cpu,cnn,8,1.5\n" + GOOD, "bad_row", 2),
        (HEADING + GOOD + "cpu,cnn,8,1.5,2.5,3.5,4\n", "bad_row", 3),
        (HEADING + "cpu,,8,1.5,2.5\n" + GOOD, "bad_row", 2),
        (HEADING + '"cpu,cnn,8,1.5,2.5\n' + GOOD, "bad_row", 2),
        (HEADING + "<<<<<<< HEAD\n" + GOOD + "=======\n>>>>>>> mine\n", "conflict_marker", 2),
        (HEADING + GOOD + "cpu,cnn,8,1.5", "truncated", 3),
        (HEADING + GOOD + "cpu,mlp,8,9.9,9.9\n", "duplicate_row", 3),
        (HEADING + "cpu,cnn,8,nan,inf\n" + GOOD, "not_finite", 2),
        (HEADING.replace("abs_latency", "speedup") + "cpu,mlp,8,1.5,2.5\n", "duplicate_column", 1),
        ("a,b,c,d,e\n1,2,x,4,5\n", "unknown_table", 1),
    ],
)
def test_damage_is_counted_at_its_line_and_the_rest_is_read(
    text: str, kind: str, line: int
) -> None:
    file = read_text(text)
    assert file.rejects.by_kind[kind].first_line == line
    if kind != "unknown_table":
        assert [result.values["speedup"] for result in file.results if result.model == "mlp"] == [
            1.5
        ]


@pytest.mark.parametrize(
    ("cell", "kind"),
    [
        ('"1,5"', "bad_number"),
        ("1.5x", "bad_number"),
        ("-1.5", "bad_number"),
        ("1e400", "not_finite"),
        ("NaN", "not_finite"),
    ],
)
def test_what_is_no_number_of_its_column_is_counted_at_its_line_and_is_no_measurement(
    cell: str, kind: str
) -> None:
    file = read_text(HEADING + GOOD + f"cpu,cnn,8,{cell},2.500000\ncpu,gnn,8,{cell},{cell}\n")
    assert (file.rejects.total, file.rejects.by_kind[kind].first_line) == (3, 3)
    assert [result.values for result in file.results[1:]] == [{"abs_latency": 2.5}, {}]
    assert (file.results[2].status, file.results[2].reason) == (
        "not_run",
        "its numbers cannot be read",
    )


def test_a_number_below_zero_in_the_json_is_counted_too() -> None:
    record = (
        '{{"benchmark": {{}}, "model": {{"name": "m"}}, "metric": {{"name": "speedup", '
        '"benchmark_values": [{}]}}}}\n'
    )
    file = read_text(record.format("-1.5") + record.format("1.5").replace('"m"', '"n"'), "x.json")
    assert file.rejects.by_kind["bad_number"].first_line == 1
    assert [result.values for result in file.results if result.model == "n"] == [{"speedup": 1.5}]


def test_a_file_of_too_many_rows_is_read_to_its_limit_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("compileboard.collectors.formats.result_file.MAX_ROWS", 3)
    file = read_text(HEADING + "".join(f"cpu,m{number},8,1.5,2.5\n" for number in range(9)))
    assert [result.model for result in file.results] == ["m0", "m1", "m2"]
    reject = file.rejects.by_kind["too_many_rows"]
    assert (reject.count, reject.first_line) == (1, 5) and "more than 3" in (reject.example or "")


@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_a_table_that_is_separated_otherwise_says_so(separator: str) -> None:
    file = read_text((HEADING + GOOD).replace(",", separator))
    reject = file.rejects.by_kind["wrong_separator"]
    assert reject.first_line == 1 and f"separated by {separator!r}, expected commas" in (
        reject.example or ""
    )


@pytest.mark.parametrize("form", ["\ufeff{}", "{}\n\n", "{}" + HEADING])
def test_what_spreadsheets_and_shells_do_to_a_file_is_no_damage(form: str) -> None:
    text = form.format(HEADING + GOOD).replace("\n", "\r\n")
    file = read_text(text)
    assert [result.model for result in file.results] == ["mlp"] and file.rejects.total == 0


def test_a_quote_inside_a_cell_opens_nothing() -> None:
    file = read_text(HEADING + 'cpu,a 5" disk,8,1.5,2.5\n' + GOOD)
    assert [result.model for result in file.results] == [
        'a 5" disk',
        "mlp",
    ] and file.rejects.total == 0


def test_a_line_break_inside_quotes_is_part_of_its_cell() -> None:
    file = read_text(HEADING + 'cpu,"two\nlines",8,1.5,2.5\n' + GOOD)
    assert [(result.model, result.origin) for result in file.results][1] == (
        "mlp",
        f"{file.name}:4",
    )


def test_a_thousand_open_quotes_cost_a_line_each() -> None:
    file = read_text(HEADING + 'cpu,"a,8,1.5,2.5\n' * 20_000 + GOOD)
    assert file.rejects.count("bad_row") == 20_000 and [
        result.model for result in file.results
    ] == ["mlp"]


def test_bad_utf8_is_replaced_and_counted_by_its_line() -> None:
    file = read_results("x.csv", (HEADING + GOOD).encode() + b"cpu,m\xff\xfep,8,1.5,2.5\n")
    assert file.rejects.by_kind["bad_utf8"].first_line == 3
    assert [result.model for result in file.results] == [
        "mlp",
        "m\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}p",
    ]


def test_a_json_file_that_is_cut_keeps_its_whole_records() -> None:
    data = (MADE / "database.json").read_bytes()
    file = read_results("database.json", data[:-40])
    assert len(file.results) == 1 and file.rejects.by_kind["truncated"].first_line == 3


def test_a_broken_line_of_json_costs_itself() -> None:
    lines = (MADE / "database.json").read_text().splitlines()
    file = read_text(
        "\n".join([lines[0], '{"benchmark": {"na', lines[2], '{"metric": 1}', "null"]),
        "database.json",
    )
    assert len(file.results) == 2
    assert {kind: reject.first_line for kind, reject in file.rejects.by_kind.items()} == {
        "bad_json": 2,
        "bad_record": 4,
    }


def test_a_cut_break_costs_itself_and_no_line_of_it_is_a_row() -> None:
    data = (RECORDED / f"{HEAD.format('Breaky', 'performance')}_graph_breaks.csv").read_bytes()
    file = read_results("x_graph_breaks.csv", data[: data.rindex(b"Hint: Set")])
    assert len(file.breaks) == 4 and {
        kind: reject.count for kind, reject in file.rejects.by_kind.items()
    } == {"truncated": 1}


def test_texts_of_strangers_stay_texts() -> None:
    file = read_text(
        HEADING + '"=cmd|\'/c calc\'!A0","<script>alert(1)</script>\0","8","1.5","2.5"\n'
    )
    assert file.results[0].model == "<script>alert(1)</script>\N{REPLACEMENT CHARACTER}"
    assert file.results[0].device == "=cmd|'/c calc'!A0"


@settings(max_examples=150)
@given(
    path=st.sampled_from(WHOLE),
    places=st.lists(
        st.tuples(st.floats(0, 1), st.binary(max_size=6), st.integers(0, 40)),
        min_size=1,
        max_size=5,
    ),
)
def test_any_damage_gives_rejects_and_never_an_exception(
    path: object, places: list[tuple[float, bytes, int]]
) -> None:
    data = path.read_bytes()  # type: ignore[attr-defined]
    for share, new, dropped in places:
        at = int(share * len(data))
        data = data[:at] + new + data[at + dropped :]
    file = read_results(path.name, data)  # type: ignore[attr-defined]
    for result in file.results:
        assert result.model and result.status in ("measured", "failed", "skipped", "not_run")
    assert all(reject.count > 0 for reject in file.rejects.by_kind.values())


@settings(max_examples=100)
@given(
    st.binary(max_size=400),
    st.sampled_from(["a.csv", "a.json", "a-raw_timings-b-cpu.npy", "x_graph_breaks.csv"]),
)
def test_any_bytes_are_results_or_named_rejects(data: bytes, name: str) -> None:
    file = read_results(name, data)
    assert set(file.rejects.by_kind) <= set(KINDS)
    assert all(
        result.model and result.status in ("measured", "failed", "skipped", "not_run")
        for result in file.results
    )
    assert file.results or file.breaks or file.rejects.by_kind or not data.strip()
