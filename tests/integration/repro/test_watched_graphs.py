"""`--repro=crash` and `--repro=accuracy`: what runs at a crash, what differs from eager."""

from __future__ import annotations

import struct
from contextlib import closing
from pathlib import Path

import pytest

from compileboard.collectors.contract.fingerprints import format_id
from compileboard.collectors.contract.record_names import GRAPH_CHECKED
from compileboard.collectors.observe.repro.watching import IN_BACKEND
from compileboard.collectors.store.codec import unpack
from compileboard.collectors.store.connection import open_reader
from compileboard.collectors.store.repros import load_repro, load_storage
from tests.integration.repro.spooled_repros import PLANTED, Spooled, observe
from tests.tools.observed import Workplace

pytestmark = pytest.mark.torch
WRONG = (
    "wrong_lowering",
    "nan_only_compiled",
    "wrong_decomposition",
    "backward_only",
    "bf16_only",
    "aliased_mutation",
)
LEVELS = ["aot", "aot", "dynamo", "aot", "aot", "aot"]
RIGHT = """
import torch

def f(x, y):
    y.add_(1)
    return x @ y + x.sum(), x[:2]

def drawn(x):
    return torch.nn.functional.dropout(x, 0.5)

torch.manual_seed(1)
x, y = torch.randn(4, 4), torch.randn(4, 4)
compiled = torch.compile(f, dynamic=True)
for size in (4, 5, 6):
    compiled(torch.randn(size, size), torch.randn(size, size))
torch.compile(drawn)(x)
print(torch.rand(1).item())
"""


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> Spooled:
    """Observe six planted wrong answers."""
    return observe(tmp_path_factory.mktemp("wrong"), PLANTED, *WRONG, repro=("accuracy",))


def verdicts(spooled: Spooled) -> list[tuple[str, str]]:
    return [
        (r["m"]["level"], r["m"]["verdict"]) for r in spooled.records if r["n"] == GRAPH_CHECKED
    ]


def test_each_wrong_answer_is_captured_at_the_level_that_shows_it(wrong: Spooled) -> None:
    assert wrong.returncode == 0, wrong.stderr
    assert [(repro.manifest.kind, repro.manifest.level) for repro in wrong.repros] == [
        ("accuracy", level) for level in LEVELS
    ]
    assert wrong.losses == {} and "Warning" not in wrong.stderr
    assert all(repro.manifest.preload == ("planted",) for repro in wrong.repros)


def test_what_differs_is_named_with_its_error_beside_eagers(wrong: Spooled) -> None:
    lowered, nan, _, backward, half, aliased = (repro.manifest for repro in wrong.repros)
    assert (
        lowered.accuracy["error"] == pytest.approx(0.011, rel=0.1)
        and lowered.accuracy["eager_error"] < 1e-5
    )
    assert nan.accuracy["error"] == "inf" and nan.accuracy["note"].startswith("NaN")
    assert backward.phase == "backward" and "float64 is not finite" in backward.accuracy["note"]
    assert 1e-3 < half.accuracy["eager_error"] < half.accuracy["limit"] < half.accuracy["error"]
    assert (
        aliased.accuracy["wrong"] == [aliased.accuracy["value"]]
        and "afterwards" in aliased.accuracy["value"]
    )


def test_every_graph_has_its_verdict(wrong: Spooled) -> None:
    assert verdicts(wrong).count(("aot", "wrong")) == 5
    assert ("aot", "same") in verdicts(wrong) and len(verdicts(wrong)) == 13


@pytest.mark.nightly
def test_the_program_gets_what_it_gets_without_us(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(RIGHT)
    cache = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}
    spooled, again = (
        observe(tmp_path / part, program, environment=cache, repro=("accuracy", "crash"))
        for part in ("new", "cached")
    )
    assert verdicts(spooled) == verdicts(again)
    plain = Workplace(tmp_path).plain(program)
    assert (spooled.stdout, spooled.stderr) == (plain.stdout, plain.stderr)
    assert spooled.repros == [] and {verdict for _, verdict in verdicts(spooled)} == {
        "same",
        "skipped",
    }
    assert verdicts(spooled).count(("aot", "same")) == 3  # one a shape
    assert {path.suffix for path in (tmp_path / "new" / "spool").iterdir()} == {
        ".json",
        ".jsonl",
        ".losses",
    }


@pytest.mark.nightly
def test_a_process_that_dies_leaves_the_graph_that_ran(workplace: Workplace) -> None:
    finished = workplace.run(PLANTED, "crash_in_custom_op", options=("--repro", "crash"))
    assert finished.returncode == -11
    (row,) = workplace.rows(
        "select kind, level, state, node_count, compile_id, error_type from repros"
    )
    assert tuple(row.values()) == ("crash", "aot", "captured", 26, "0/0", "SIGSEGV")
    assert workplace.spools == []


BACKEND = """
import os, sys, time, torch

def mine(gm, inputs):
    if sys.argv[1:] == ["die"]:
        os.abort()
    calls = []

    def run(*values):
        calls.append(values)
        return [value * (1.5 if len(calls) > 4 else 1) for value in gm(*values)]

    return run

compiled = torch.compile(lambda x: x.sin() + 1, backend=mine)
for _ in range(9):
    compiled(torch.ones(3))
"""


@pytest.mark.nightly
def test_a_backend_that_dies_leaves_dynamos_graph(workplace: Workplace) -> None:
    program = workplace.write(BACKEND)
    assert workplace.run(program, "die", options=("--repro", "crash")).returncode == -6
    (row,) = workplace.rows("select kind, level, error_type, message, node_count from repros")
    assert tuple(row.values()) == ("crash", "dynamo", "SIGABRT", IN_BACKEND, 1)


@pytest.mark.nightly
def test_a_graph_that_is_wrong_from_its_fifth_call_on_is_found_at_its_eighth(
    tmp_path: Path,
) -> None:
    program = tmp_path / "program.py"
    program.write_text(BACKEND)
    spooled = observe(tmp_path / "spool", program, repro=("accuracy",))
    checks = [record["m"] for record in spooled.records if record["n"] == GRAPH_CHECKED]
    assert [(check["call"], check["verdict"]) for check in checks] == [
        (1, "same"),
        (2, "same"),
        (4, "same"),
        (8, "wrong"),
    ]
    assert str(spooled.repros[0].manifest.message).endswith("in call 8")


def test_a_devices_late_error_leaves_the_graph_that_ran_last(workplace: Workplace) -> None:
    program = workplace.write(
        "import torch\n"
        "torch.compile(lambda x: x.sin() + 1, backend='aot_eager')(torch.ones(3))\n"
        "torch.compile(lambda x: x.cos() + 2, backend='aot_eager')(torch.ones(4))\n"
        "raise RuntimeError('CUDA error: an illegal memory access was encountered')\n"
    )
    finished = workplace.run(program, options=("--repro", "crash"))
    assert finished.returncode == 1
    (row,) = workplace.rows("select kind, error_type, message, manifest from repros")
    assert (row["kind"], row["error_type"]) == ("runtime", "RuntimeError")
    assert row["message"].startswith("CUDA error: an illegal")
    assert '"is_asynchronous":true' in unpack(row["manifest"])


DIES_OF_A_VALUE = """
import ctypes, sys, torch

@torch.library.custom_op("dying::check", mutates_args=())
def check(x: torch.Tensor) -> torch.Tensor:
    if x[0] < 0 and sys.argv[1] == "error":
        raise RuntimeError("CUDA error: an illegal memory access was encountered")
    return x.clone() if x[0] >= 0 else ctypes.string_at(0)

check.register_fake(torch.empty_like)
compiled = torch.compile(lambda x, y: check(x).sin() + y, backend="aot_eager")
for value in map(float, sys.argv[2:]):
    compiled(torch.full((4,), value), torch.ones(4))
"""


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("end", "values"),
    [
        ("crash", ("-1",)),
        ("error", ("1", "-1")),
        pytest.param("crash", ("1", "-1"), marks=pytest.mark.nightly),
        pytest.param("error", ("-1",), marks=pytest.mark.nightly),
    ],
)
def test_values_are_written_before_the_first_call(
    workplace: Workplace, end: str, values: tuple[str, ...]
) -> None:
    program = workplace.write(DIES_OF_A_VALUE)
    finished = workplace.run(program, end, *values, options=("--repro", "crash", "--repro-inputs"))
    assert finished.returncode == (-11 if end == "crash" else 1)
    (row,) = workplace.rows("select id, kind, error_type, message from repros")
    assert (row["kind"], row["error_type"]) == (
        ("crash", "SIGSEGV") if end == "crash" else ("runtime", "RuntimeError")
    )
    with closing(open_reader(workplace.database)) as connection:
        repro = load_repro(connection, format_id(row["id"]))
        first = load_storage(connection, repro.id, repro.manifest.inputs[0].digest)
    assert [entry.values for entry in repro.manifest.inputs] == ["kept", "kept"]
    assert first == struct.pack("4f", *[float(values[0])] * 4)
    assert repro.manifest.has_earlier_values == (len(values) > 1)
    assert workplace.spools == []


@pytest.mark.nightly
def test_a_run_says_what_it_compared_and_what_that_took(workplace: Workplace) -> None:
    options = ("--repro", "accuracy", "--repro-inputs=1MiB")
    finished = workplace.run(PLANTED, "wrong_lowering", options=options)
    assert finished.returncode == 0
    assert (
        "compared 2 graphs with eager in 0." in finished.stderr and " s: 2 wrong" in finished.stderr
    )
    assert workplace.value("select count(*) from repro_storages") == 4


def test_values_and_no_source_exclude_each_other(workplace: Workplace) -> None:
    refused = workplace.run("true", options=("--repro-inputs", "--no-source"))
    assert (
        refused.returncode == 2 and "--repro-inputs keeps the values of tensors" in refused.stderr
    )
    assert workplace.run("true", options=("--repro-inputs=lots",)).returncode == 2
