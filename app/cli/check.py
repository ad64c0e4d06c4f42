"""`compileboard check`: put a run and a baseline under rules, and exit with what came of it."""

from __future__ import annotations

import argparse
import csv
import io
import json
import math
import os
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any

from compileboard.app.checks.decision import NOT_COMPARED, Report, compare
from compileboard.app.checks.formats import (
    check_targets,
    make_json,
    write_junit,
    write_markdown,
    write_outputs,
    write_table,
)
from compileboard.app.checks.rules import DEFAULT, RULES, pr_time
from compileboard.app.checks.rules.model import IMPROVED, NOTE, PASS, RuleOptions, Side
from compileboard.app.checks.sides import choose_both, load_run, name_field
from compileboard.app.checks.tables import CannotCompare, list_flaky, read_table
from compileboard.app.checks.targets import find_baseline, find_run, is_file
from compileboard.app.settings import load_settings
from compileboard.collectors.store.connection import open_reader
from compileboard.collectors.store.errors import StoreError, explain

EPILOG = """\
what to compare with (--baseline):
  latest, previous     another run of the same name and suite: the newest, or the newest before this one
  ID                   a run, by its id or the beginning of it
  COMMIT               the newest run of a commit, by the beginning of its hash
  NAME, baseline:NAME  a stored baseline: compileboard baseline save NAME --run ID
  FILE.csv             upstream's expected accuracies, pr_time_benchmarks' expected results, or any results CSV

examples:
  %(prog)s --run latest --baseline previous
  %(prog)s --run latest --baseline main --junit check.xml --github-summary
  %(prog)s --run 01JD3W --baseline ci_expected_accuracy/inductor_torchbench_inference.csv --rule accuracy \\
      --rule graph-breaks --suite torchbench --mode inference
  %(prog)s --run results.csv --rule performance --threshold 1.0 --threshold-scale 0.95
  %(prog)s --run results.csv --baseline expected_results.csv --rule pr-time --propose new_expected.csv

Exit codes: 0 pass, 1 fail, 2 could not compare. Rules and their verdicts: --list-rules.
"""
FIELDS = ("suite", "mode", "dtype", "device", "backend")
NUMBERS = ("batch_size", "world_size")


def add_parser(commands: Any) -> None:
    """Describe `check` to the command line."""
    parser = commands.add_parser(
        "check",
        help="compare a run with a baseline, for CI",
        description="Compare a run with a baseline under named rules, and fail where it got worse.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--db", metavar="FILE", help="The database file. Default: compileboard.db.")
    parser.add_argument("--run", metavar="ID", default="latest", help="A run, latest, or a CSV. Default: latest.")
    parser.add_argument("--baseline", metavar="WHAT", help="What to compare with; see below.")
    parser.add_argument(
        "--rule",
        action="append",
        default=[],
        metavar="NAME",
        help=f"A rule; give it again for more. Default: {DEFAULT}.",
    )
    parser.add_argument("--list-rules", action="store_true", help="List the rules with their verdicts, and end.")
    _add_choices(parser)
    _add_numbers(parser)
    outputs = parser.add_argument_group("outputs (- is stdout)")
    outputs.add_argument("--markdown", metavar="FILE", help="Write Markdown, for a CI job's summary.")
    outputs.add_argument("--junit", metavar="FILE", help="Write JUnit XML: a testsuite a rule, a testcase a model.")
    outputs.add_argument("--json", metavar="FILE", help="Write JSON, as GET /api/v1/check gives it.")
    outputs.add_argument("--propose", metavar="FILE", help="Write pr-time's new expected results.")
    outputs.add_argument(
        "--github-summary", action="store_true", help="Append the Markdown to the file that $GITHUB_STEP_SUMMARY names."
    )
    outputs.add_argument("--all", action="store_true", help="Print the verdicts that pass as well.")
    parser.set_defaults(function=check)


def _add_choices(parser: argparse.ArgumentParser) -> None:
    choices = parser.add_argument_group("which results")
    for name in FIELDS:
        choices.add_argument(f"--{name}", metavar="WORD", help=f"Only results of this {name}.")
    shapes = choices.add_mutually_exclusive_group()
    shapes.add_argument("--dynamic", action="store_const", const=True, help="Only results of dynamic shapes.")
    shapes.add_argument("--static", dest="dynamic", action="store_const", const=False, help="Only of static shapes.")
    for name in NUMBERS:
        flag = f"--{name.replace('_', '-')}"
        choices.add_argument(flag, type=_read_whole, metavar="N", help=f"Only results of this {name_field(name)}.")
    choices.add_argument("--model", action="append", default=[], metavar="NAME", help="Only this model; repeatable.")


def _read_whole(text: str) -> int:
    if not text.isdecimal() or not text.isascii():
        raise argparse.ArgumentTypeError(f"{text[:80]!r} is no whole number")
    return int(text)


def _read_positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise argparse.ArgumentTypeError(f"{text[:80]!r} is no finite number above 0")
    return value


def _add_numbers(parser: argparse.ArgumentParser) -> None:
    rules = parser.add_argument_group("what the rules are told")
    rules.add_argument("--flaky", action="append", default=[], metavar="MODEL", help="A flaky model; repeatable.")
    rules.add_argument("--no-known-flaky", action="store_true", help="Forget the harness's own list of flaky models.")
    rules.add_argument("--threshold", type=_read_positive, metavar="X", help="performance: the metric's target.")
    rules.add_argument(
        "--threshold-scale", type=_read_positive, default=1.0, metavar="X", help="performance: relaxes it."
    )
    rules.add_argument("--metric", choices=("speedup", "abs_latency"), default="speedup", help="performance: of what.")
    rules.add_argument("--fail-on-improvement", action="store_true", help="performance: fail above the target too.")
    rules.add_argument(
        "--noise-margin",
        type=_read_positive,
        default=RuleOptions.noise_margin,
        metavar="X",
        help="pr-time, where none is expected.",
    )
    rules.add_argument(
        "--tolerance",
        type=_read_positive,
        default=RuleOptions.tolerance,
        metavar="X",
        help="speedup: a smaller change is none.",
    )
    rules.add_argument("--allow-improvement", action="store_true", help="What got better does not fail.")
    rules.add_argument(
        "--allow-environment-change", action="store_true", help="Compare speeds across another GPU or torch, and warn."
    )


def check(arguments: argparse.Namespace) -> int:
    """Compare and write; return the exit code."""
    if arguments.list_rules:
        write_outputs((), describe_rules())
        return 0
    path = load_settings(os.environ, {"db": arguments.db}).db
    try:
        check_targets(_list_targets(arguments))
        actual, expected = _load(path, arguments)
        fields = (*FIELDS, "dynamic", *NUMBERS)
        wanted = {name: value for name in fields if (value := getattr(arguments, name)) is not None}
        actual, expected, notes = choose_both(actual, expected, wanted, arguments.model)
        options = _read_options(arguments)
        report = compare(
            actual,
            expected,
            arguments.rule,
            options,
            allow_improvement=arguments.allow_improvement,
            allow_environment_change=arguments.allow_environment_change,
            notes=notes,
        )
        proposed = _propose(actual, expected, options) if arguments.propose else ""
        _write(report, arguments, proposed)
    except CannotCompare as error:
        return _fail(f"{error}: {error.flags}" if error.flags else str(error))
    except StoreError as error:
        return _fail(str(error))
    except sqlite3.Error as error:
        return _fail(str(explain(error, path)))
    except OSError as error:
        return _fail(f"cannot write {error.filename or 'to stdout'}: {error.strerror or error}")
    return report.exit_code


def _read_options(arguments: argparse.Namespace) -> RuleOptions:
    if arguments.threshold is not None and "performance" not in arguments.rule:
        raise CannotCompare("--threshold is what --rule performance compares with; add that rule, or leave it out")
    known = frozenset() if arguments.no_known_flaky else list_flaky()
    return RuleOptions(
        flaky=known | frozenset(arguments.flaky),
        threshold=arguments.threshold,
        threshold_scale=arguments.threshold_scale,
        metric=arguments.metric,
        fail_on_improvement=arguments.fail_on_improvement,
        noise_margin=arguments.noise_margin,
        tolerance=arguments.tolerance,
    )


def _load(path: str, arguments: argparse.Namespace) -> tuple[Side, Side | None]:
    """Load both sides; the database is opened where one of them is in it."""
    with ExitStack() as stack:
        opened: list[sqlite3.Connection] = []

        def get_reader() -> sqlite3.Connection:
            if not opened:
                opened.append(stack.enter_context(closing(open_reader(path))))
            return opened[0]

        run = None if is_file(arguments.run) else find_run(get_reader, arguments.run)
        actual = read_table(arguments.run) if run is None else load_run(get_reader(), run)
        named = arguments.baseline
        return actual, find_baseline(get_reader, named, run) if named else None


def _list_targets(arguments: argparse.Namespace) -> dict[str, str | None]:
    summary = os.environ.get("GITHUB_STEP_SUMMARY") if arguments.github_summary else None
    if arguments.github_summary and not summary:
        raise CannotCompare("--github-summary: $GITHUB_STEP_SUMMARY names no file; it is set in GitHub Actions alone")
    named = {f"--{name}": getattr(arguments, name) for name in ("markdown", "junit", "json", "propose")}
    return named | {"--github-summary": summary}


def _write(report: Report, arguments: argparse.Namespace, proposed: str) -> None:
    markdown = "\n".join(write_markdown(report)) + "\n"
    if arguments.github_summary:
        with open(os.environ["GITHUB_STEP_SUMMARY"], "a", encoding="utf-8") as file:
            file.write(markdown)
    documents = (
        (arguments.markdown, markdown.encode()),
        (arguments.junit, write_junit(report)),
        (arguments.json, json.dumps(make_json(report), indent=2).encode() + b"\n"),
        (arguments.propose, proposed.encode()),
    )
    write_outputs(documents, write_table(report, every=arguments.all))


def _propose(actual: Side, expected: Side | None, options: RuleOptions) -> str:
    if expected is None or not pr_time.list_counts(expected):
        raise CannotCompare("--propose writes pr-time's new expected results; --baseline has none to begin with")
    out = io.StringIO(newline="")
    writer = csv.writer(out)
    for row in pr_time.propose(actual, expected, options):
        writer.writerow(row)
        writer.writerows([[], [], []])  # as upstream: merges of neighbouring rows conflict otherwise
    return out.getvalue()


def describe_rules() -> Iterator[str]:
    """Yield a line for each rule and one for its verdicts."""
    kinds = {PASS: "", NOTE: "", IMPROVED: " (fails, unless --allow-improvement)"}
    for rule in RULES:
        yield f"{rule.name}{' (default)' if rule.is_default else ''}: {rule.said} [{rule.source}]"
        words = [f"{word}{kinds.get(outcome, ' (fails)')}" for word, outcome in rule.words.items()]
        yield f"    {', '.join(words)}"


def _fail(message: str) -> int:
    sys.stderr.write(f"compileboard: {message}\n")
    return NOT_COMPARED
