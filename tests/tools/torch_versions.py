"""The tests that `make versions` runs with each torch, and the table that it writes of them.

python -m tests.tools.torch_versions tests          print them, for pytest
python -m tests.tools.torch_versions record FILE …  keep what pytest wrote with --junitxml=FILE; of
                                                    a test that was run again, the last FILE's
python -m tests.tools.torch_versions table          write docs/compatibility.md's table anew
"""

from __future__ import annotations

import argparse
import importlib
import json
import platform
from collections.abc import Iterable, Iterator
from datetime import date
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from tests.tools.written_tables import fill_table

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "tests" / "data" / "torch_versions"
PAGE = ROOT / "docs" / "compatibility.md"
INTEGRATION = "tests/integration"
FIVE = f"{INTEGRATION}/test_five_programs.py::test_as_much_is_recorded_as_torch_logs"
EACH, REPRO = f"{INTEGRATION}/test_each_torch.py", f"{INTEGRATION}/repro"
PROGRAMS = ("graph_break", "size", "global_number", "limit", "training")

# A row of the table -> its tests.
FEATURES: dict[str, tuple[str, ...]] = {
    "`doctor`": (
        "tests/unit/cli/test_doctor.py::test_doctor_says_what_is_recorded_and_what_is_out_of_reach",
    ),
    **{
        f"`run`, `--level {level}`: as many as in torch's log": tuple(
            f"{FIVE}[{program}-{level}]" for program in PROGRAMS
        )
        for level in ("light", "full")
    },
    "hooks record what `import` reads in torch's log": (f"{INTEGRATION}/test_both_ways.py",),
    "a program has the same output and exceptions as without CompileBoard": (
        "tests/fault/test_torch_faults.py::test_the_same_output_and_exceptions_with_and_without_us",
    ),
    "failures of compiled code": tuple(
        f"{INTEGRATION}/test_runtime_failure_runs.py::{name}"
        for name in (
            "test_what_compiled_code_raises_is_recorded_once_each",
            "test_a_failure_knows_its_compile_and_the_programs_line",
        )
    ),
    "every failed guard of a recompile": (f"{INTEGRATION}/test_failed_guards.py",),
    "skips of CUDA graphs": (f"{EACH}::test_skips_of_cuda_graphs_are_watched_or_it_is_said",),
    "recordings of CUDA graphs (hooks in place, no GPU)": (
        f"{EACH}::test_recordings_of_cuda_graphs_are_watched",
    ),
    "`run --steps`": (
        f"{INTEGRATION}/test_steps.py::test_a_training_step_has_its_graphs_forward_and_backward",
        f"{INTEGRATION}/test_steps.py::test_code_times_steps_without_a_command",
    ),
    "repros of what fails": tuple(
        f"{REPRO}/test_capture.py::{name}"
        for name in (
            "test_each_compile_that_fails_is_captured_once",
            "test_the_graph_holds_the_planted_operation",
            "test_a_forward_that_raises_names_level_phase_and_backend",
            "test_a_backward_that_raises_is_captured_as_one[aot_eager]",
        )
    ),
    "`run --repro=accuracy`": (f"{EACH}::test_a_wrong_decomposition_is_captured_as_dynamos_graph",),
    "`repro run`": (f"{EACH}::test_a_recorded_failure_is_run_again",),
    "`repro minify`": (
        f"{REPRO}/test_minify.py::test_a_planted_failure_is_minified_to_its_operation[dynamic_only]",
    ),
    "`repro analyze`": (
        f"{REPRO}/test_analyze.py::test_the_wrong_operation_is_named_and_explains_the_output",
    ),
    "`bench`": (f"{EACH}::test_a_model_is_measured_and_judged",),
    "`try`": (
        f"{INTEGRATION}/test_try.py::test_a_fix_that_loses_printed_lines_is_no_fix",
        f"{INTEGRATION}/test_try.py::test_the_step_is_that_of_the_function_whose_break_is_gone",
    ),
    "a torch before 2.4 is refused in a sentence": (
        f"{EACH}::test_a_torch_too_old_is_refused_in_a_sentence",
    ),
    "the pytest plugin": (
        f"{INTEGRATION}/test_pytest_plugin.py::test_new_breaks_fail_until_they_are_kept",
    ),
}


def list_tests() -> list[str]:
    return [test for tests in FEATURES.values() for test in tests]


def read_results(*junits: Path) -> dict[str, dict[str, Any]]:
    """Return what came of each feature's tests, of each what the last file has."""
    results: dict[str, dict[str, Any]] = {
        name: {"passed": 0, "failed": [], "skipped": []} for name in FEATURES
    }
    cases: dict[str, list[ElementTree.Element]] = {}
    for junit in junits:
        new: dict[str, list[ElementTree.Element]] = {}
        for case in ElementTree.parse(junit).iter("testcase"):
            test = f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"
            new.setdefault(test, []).append(case)
        cases |= new
    for test, case in [(name, case) for name, found in cases.items() for case in found]:
        (feature,) = (name for name, tests in FEATURES.items() if test.startswith(tests))
        result = results[feature]
        skipped = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            result["failed"].append(test)
        elif skipped is not None:
            result["skipped"].append(skipped.get("message"))
        else:
            result["passed"] += 1
    return results


def list_missing() -> dict[str, str]:
    """Return what this torch lacks, in the words that a run's page has for it."""
    from compileboard.collectors.observe import torch_compat

    return {
        name: torch_compat.describe_missing(name)
        for name in torch_compat.NAMES
        if torch_compat.load(name) is torch_compat.MISSING
    }


def record(*junits: Path) -> Path:
    torch = importlib.import_module("torch")
    utils = importlib.import_module("torch._dynamo.utils")
    version = torch.__version__
    body = {
        "torch": version.partition("+")[0],
        "build": f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPU",
        "python": platform.python_version(),
        "date": date.today().isoformat(),
        "metrics_fields": len(utils.CompilationMetrics.__dataclass_fields__),
        "missing": list_missing(),
        "features": read_results(*junits),
    }
    path = RESULTS / f"{body['torch']}-python{'.'.join(platform.python_version_tuple()[:2])}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(body, indent=1) + "\n", encoding="utf-8")
    return path


def load_results() -> list[dict[str, Any]]:
    results = [json.loads(path.read_text(encoding="utf-8")) for path in RESULTS.glob("*.json")]
    return sorted(results, key=lambda one: [_numbers(one["torch"]), _numbers(one["python"])])


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


def write_table(results: list[dict[str, Any]]) -> Iterator[str]:
    """Yield a column for each torch and Python, a row for each feature that some lack or that was
    not run, the notes, and what works with all.
    """
    notes: dict[str, int] = {}

    def row(head: str, cells: Iterable[Any]) -> str:
        return f"| {head} | {' | '.join(map(str, cells))} |"

    yield from ("", row("torch", (one["torch"] for one in results)))
    yield "|---" * (len(results) + 1) + "|"
    yield row("Python", (".".join(one["python"].split(".")[:2]) for one in results))
    yield row("run on", (one["date"] for one in results))
    yield row("tests: passed, failed, skipped", map(_count, results))
    yield row("fields of a compilation record", (one["metrics_fields"] for one in results))
    works = []
    for feature in FEATURES:
        cells = [_cell(one["features"].get(feature), notes) for one in results]
        if set(cells) == {"yes"}:
            works.append(feature)
        else:
            yield row(feature, cells)
    missing = (list(one["missing"].values()) for one in results)
    yield row(
        "what a run's page says it lacks", (_number(texts, notes) or "–" for texts in missing)
    )
    yield ""
    for text, number in notes.items():
        yield f"{number}. {text}"
    yield from ("", "Works with each of them:", "", *(f"- {feature}" for feature in works), "")


def _count(result: dict[str, Any]) -> str:
    features = [one for name, one in result["features"].items() if name in FEATURES]
    passed = sum(one["passed"] for one in features)
    failed, skipped = (sum(len(one[what]) for one in features) for what in ("failed", "skipped"))
    return f"{passed}, {failed}, {skipped}"


def _cell(result: dict[str, Any] | None, notes: dict[str, int]) -> str:
    """Return a word for a feature, with the numbers of the notes that say why."""
    if not result or not any(result.values()):
        return "not run"
    texts = [*(f"`{test}`" for test in result["failed"]), *dict.fromkeys(result["skipped"])]
    word = "fails" if result["failed"] else "in part" if result["passed"] else "no"
    return f"{word} ({_number(texts, notes)})" if texts else "yes"


def _number(texts: list[str], notes: dict[str, int]) -> str:
    return ", ".join(str(notes.setdefault(text, len(notes) + 1)) for text in texts)


def fill_page(text: str) -> str:
    """Return docs/compatibility.md with its table written anew."""
    return fill_table(text, "torch versions", write_table(load_results()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("tests", "record", "table"))
    parser.add_argument("junit", nargs="*", type=Path)
    given = parser.parse_args()
    if given.what == "tests":
        print("\n".join(list_tests()))
        return
    if given.what == "record":
        print(record(*given.junit))
    PAGE.write_text(fill_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
