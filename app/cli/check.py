"""`compileboard check`: apply rules to a run and a baseline; the exit code is the result."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import fields
from functools import cache, partial
from types import SimpleNamespace
from typing import Any

import click

from compileboard.app.checks.decision import (
    Check,
    CheckScreen,
    build_check,
    load_fixes,
    load_rules,
)
from compileboard.app.checks.github_annotations import NAME, publish
from compileboard.app.checks.model import IMPROVED, NOTE, PASS, CannotCompare, RuleOptions
from compileboard.app.checks.rules import DEFAULT, RULES, counts
from compileboard.app.checks.upstream_csv import list_flaky
from compileboard.app.cli.common import db_option, read_command_clock
from compileboard.app.core.page import FilterError
from compileboard.app.core.schema import get_plain
from compileboard.app.core.store import open_store
from compileboard.app.reports.check_report import (
    NO_FIXES,
    STDOUT,
    check_targets,
    write_junit,
    write_markdown,
    write_outputs,
    write_table,
)
from compileboard.app.reports.markdown import prose
from compileboard.app.reports.output import describe_write_error, fail
from compileboard.collectors.store.connection import StoreError
from compileboard.command_line import Choice, Command, Option, Value

EPILOG = """\
what to compare with (--baseline):
  latest, previous     another run of the same name and suite: the newest, \
or the newest before this one
  ID                   a run, by its id or the beginning of it
  COMMIT               the newest run of a commit, by the beginning of its hash
  NAME, baseline:NAME  a stored baseline: compileboard baseline save NAME --run ID
  FILE.csv             upstream's expected accuracies, pr_time_benchmarks' expected results, \
or any results CSV

Examples:
  %(prog)s --run latest --baseline previous
  %(prog)s --run latest --baseline main --junit check.xml --github-summary
  %(prog)s --run 01JD3W --baseline ci_expected_accuracy/inductor_torchbench_inference.csv \
--rule accuracy \\
      --rule graph-breaks --suite torchbench --mode inference
  %(prog)s --run results.csv --rule performance --threshold 1.0 --threshold-scale 0.95
  %(prog)s --run results.csv --baseline expected_results.csv --rule pr-time \
--propose new_expected.csv

Exit codes: 0 pass, 1 fail, 2 could not compare. Rules and their verdicts: --list-rules.
"""
FIELDS = ("suite", "mode", "dtype", "device", "backend")
NUMBERS = ("batch_size", "world_size")


def _read_whole(text: str) -> int:
    if not text.isdecimal() or not text.isascii():
        raise ValueError(f"{text[:80]!r} is not a whole number")
    return int(text)


def _read_positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{text[:80]!r} is not a finite number above 0")
    return value


def _read_comment_name(text: str) -> str:
    if not NAME.fullmatch(text):
        raise ValueError(f"{text[:80]!r} is not a valid name; expected letters, digits and . _ -")
    return text


def _read_rules(ctx: click.Context, path: str | None) -> dict[str, Any]:
    by_option = {flag: param for param in ctx.command.params for flag in param.opts}
    by_name = {param.name: param for param in ctx.command.params}
    values: dict[str, Any] = {}
    try:
        for name, value in (load_rules(path, by_option) if path else {}).items():
            if ctx.get_parameter_source(name) is click.core.ParameterSource.DEFAULT:
                values[name] = by_name[name].type_cast_value(ctx, value)
    except ValueError as error:
        raise CannotCompare(str(error)) from None
    except click.BadParameter as error:
        raise CannotCompare(f"{path}: {error.format_message()}") from None
    return values


which = partial(click.option, cls=Option, group="Results to check")
rule_option = partial(click.option, cls=Option, group="Values for rules")
github = partial(click.option, cls=Option, group="GitHub Actions")
output = partial(click.option, cls=Option, group="Outputs (- is stdout)")


@click.command(cls=Command, epilog=EPILOG)
@db_option
@click.option(
    "--run", default="latest", metavar="ID", help="Run, latest, or a CSV. Default: latest."
)
@click.option("--baseline", metavar="WHAT", help="Baseline to compare with; see below.")
@click.option(
    "--rule",
    "rule_names",
    multiple=True,
    metavar="NAME",
    help=f"Rule to apply; repeatable. Default: {DEFAULT}.",
)
@click.option(
    "--rules",
    metavar="FILE",
    help="TOML file of rules and their values; the command line goes first.",
)
@click.option("--list-rules", is_flag=True, help="List the rules with their verdicts, and end.")
@which("--suite", metavar="WORD", help="Only results of this suite.")
@which("--mode", metavar="WORD", help="Only results of this mode.")
@which("--dtype", metavar="WORD", help="Only results of this dtype.")
@which("--device", metavar="WORD", help="Only results of this device.")
@which("--backend", metavar="WORD", help="Only results of this backend.")
@which(
    "--dynamic",
    flag_value=True,
    default=None,
    exclusive="shapes",
    help="Only results of dynamic shapes.",
)
@which(
    "--static",
    "dynamic",
    flag_value=False,
    default=None,
    exclusive="shapes",
    help="Only results of static shapes.",
)
@which(
    "--batch-size", type=Value(_read_whole), metavar="N", help="Only results of this batch size."
)
@which(
    "--world-size", type=Value(_read_whole), metavar="N", help="Only results of this world size."
)
@which("--model", "models", multiple=True, metavar="NAME", help="Only this model; repeatable.")
@rule_option("--flaky", multiple=True, metavar="MODEL", help="Flaky model; repeatable.")
@rule_option(
    "--no-known-flaky", is_flag=True, help="Ignore the harness's own list of flaky models."
)
@rule_option(
    "--threshold",
    type=Value(_read_positive),
    metavar="X",
    help="Target of the metric, for rule performance.",
)
@rule_option(
    "--threshold-scale",
    type=Value(_read_positive),
    default=1.0,
    metavar="X",
    help="Factor that relaxes the target. Default: 1.",
)
@rule_option(
    "--metric",
    type=Choice(("speedup", "abs_latency")),
    default="speedup",
    help="Metric of rule performance. Default: speedup.",
)
@rule_option(
    "--fail-on-improvement", is_flag=True, help="Fail above the target too, for rule performance."
)
@rule_option(
    "--noise-margin",
    type=Value(_read_positive),
    default=RuleOptions.noise_margin,
    metavar="X",
    help=(
        "Margin of rule pr-time where none is expected, as a share. Default: "
        f"{RuleOptions.noise_margin}."
    ),
)
@rule_option(
    "--tolerance",
    type=Value(_read_positive),
    default=RuleOptions.tolerance,
    metavar="X",
    help=f"Smallest change of rule speedup, as a share. Default: {RuleOptions.tolerance}.",
)
@rule_option("--allow-improvement", is_flag=True, help="Let improvements pass.")
@rule_option(
    "--allow-environment-change",
    is_flag=True,
    help="Compare speeds across another GPU or torch, and warn.",
)
@output("--markdown", metavar="FILE", help="Write Markdown, for a CI job's summary.")
@output("--junit", metavar="FILE", help="Write JUnit XML: a testsuite a rule, a testcase a model.")
@output("--json", metavar="FILE", help="Write JSON, as GET /api/v1/check gives it.")
@output("--propose", metavar="FILE", help="Write pr-time's new expected results.")
@github(
    "--github-summary",
    is_flag=True,
    help="Append the Markdown to the file that $GITHUB_STEP_SUMMARY names.",
)
@github(
    "--changed-since",
    metavar="COMMIT",
    help="Print annotations for GitHub: what is new on lines that were changed since this commit.",
)
@github(
    "--github-comment",
    type=Value(_read_comment_name),
    metavar="NAME",
    help="Comment on the workflow's pull request, or update the comment of this name.",
)
@github(
    "--not-measured", metavar="WHY", help="Tell GitHub that there is nothing to compare, and why."
)
@output("--all", is_flag=True, help="Print the verdicts that pass as well.")
def check(db: str, **options: Any) -> int:
    """Compare a run with a baseline under named rules, and fail if any rule finds it worse."""
    arguments = SimpleNamespace(**options)
    try:
        check_targets(_list_targets(arguments))
        try:
            vars(arguments).update(_read_rules(click.get_current_context(), arguments.rules))
            if arguments.list_rules:
                write_outputs((), describe_rules())
                return 0
            if arguments.not_measured:
                raise CannotCompare(arguments.not_measured)
            screen = _build_check(db, arguments)
            proposed = _propose_expected(screen) if arguments.propose else ""
        except (FilterError, StoreError) as error:
            # An older comment would keep showing an older commit's result.
            words = "measured" if arguments.not_measured else "compared"
            _publish_to_github(None, f"### ⚠️ Not {words}\n\n{prose(str(error), 1000)}\n", arguments)
            raise
        _write_outputs(db, screen.report, arguments, proposed)
    except FilterError as error:
        flags = getattr(error, "flags", "")
        return fail(f"{error}: {flags}" if flags else str(error))
    except OSError as error:
        return fail(describe_write_error(error.filename or "to stdout", error))
    return screen.report.exit_code


def _read_options(options: SimpleNamespace) -> RuleOptions:
    if options.threshold is not None and "performance" not in options.rule_names:
        raise CannotCompare(
            "--threshold is what --rule performance compares with; add that rule, or leave it out"
        )
    known = frozenset() if options.no_known_flaky else list_flaky()
    return RuleOptions(
        flaky=known | frozenset(options.flaky),
        **{
            field.name: getattr(options, field.name)
            for field in fields(RuleOptions)
            if field.name != "flaky"
        },
    )


def _build_check(path: str, arguments: SimpleNamespace) -> CheckScreen:
    names = (*FIELDS, "dynamic", *NUMBERS)
    with ExitStack() as stack:
        return build_check(
            cache(lambda: stack.enter_context(closing(open_store(path)))),
            read_command_clock(),
            run=arguments.run,
            baseline=arguments.baseline,
            rules=arguments.rule_names,
            choices={
                name: value for name in names if (value := getattr(arguments, name)) is not None
            },
            models=arguments.models,
            options=_read_options(arguments),
            allow_environment_change=arguments.allow_environment_change,
        )


def _list_targets(arguments: SimpleNamespace) -> dict[str, str | None]:
    summary = os.environ.get("GITHUB_STEP_SUMMARY") if arguments.github_summary else None
    if arguments.github_summary and not summary:
        raise CannotCompare(
            "--github-summary: $GITHUB_STEP_SUMMARY names no file; it is set in GitHub Actions "
            "alone"
        )
    named = {
        f"--{name}": getattr(arguments, name) for name in ("markdown", "junit", "json", "propose")
    }
    is_told = arguments.changed_since or arguments.github_comment
    commands = (
        {"--changed-since and --github-comment": STDOUT}
        if is_told and STDOUT in named.values()
        else {}
    )
    return named | {"--github-summary": summary} | commands


def _write_outputs(db: str, report: Check, arguments: SimpleNamespace, proposed: str) -> None:
    is_told = (
        arguments.markdown
        or arguments.github_summary
        or arguments.changed_since
        or arguments.github_comment
    )
    fixes = _load_fixes(db, arguments.run) if report.failures and is_told else NO_FIXES
    in_pull_request = bool(arguments.changed_since)
    markdown = write_markdown(report, fixes, in_pull_request=in_pull_request)
    documents = (
        (arguments.markdown, markdown.encode()),
        (arguments.junit, write_junit(report)),
        (arguments.json, json.dumps(get_plain(report), indent=2).encode() + b"\n"),
        (arguments.propose, proposed.encode()),
    )
    write_outputs(
        documents, write_table(report, every=arguments.all, in_pull_request=in_pull_request)
    )
    _publish_to_github(report, markdown, arguments, fixes)


def _load_fixes(db: str, run: str) -> Mapping[str, str]:
    with ExitStack() as stack:
        return load_fixes(
            cache(lambda: stack.enter_context(closing(open_store(db)))), read_command_clock(), run
        )


def _publish_to_github(
    report: Check | None,
    markdown: str,
    arguments: SimpleNamespace,
    fixes: Mapping[str, str] = NO_FIXES,
) -> None:
    publish(
        report,
        markdown,
        fixes,
        os.environ,
        os.getcwd(),
        summary=arguments.github_summary,
        changed_since=arguments.changed_since,
        comment=arguments.github_comment,
    )


def _propose_expected(screen: CheckScreen) -> str:
    actual, expected, options = screen.actual, screen.expected, screen.options
    if expected is None or not counts.list_counts(expected):
        raise CannotCompare(
            "--propose writes pr-time's new expected results; --baseline has none to begin with"
        )
    out = io.StringIO(newline="")
    writer = csv.writer(out)
    for row in counts.propose_expected(actual, expected, options):
        writer.writerow(row)
        writer.writerows(
            [[], [], []]
        )  # as upstream: otherwise merges of neighbouring rows conflict
    return out.getvalue()


def describe_rules() -> Iterator[str]:
    kinds = {PASS: "", NOTE: "", IMPROVED: " (fails, unless --allow-improvement)"}
    for rule in RULES:
        yield f"{rule.name}{' (default)' if rule.is_default else ''}: {rule.about} [{rule.source}]"
        words = [f"{word}{kinds.get(outcome, ' (fails)')}" for word, outcome in rule.words.items()]
        yield f"    {', '.join(words)}"
