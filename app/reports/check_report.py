"""Write the result of a check: a table for the terminal, Markdown, and JUnit XML."""

from __future__ import annotations

import os
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from xml.etree import ElementTree

from compileboard.app.checks.decision import Check, CheckedRule
from compileboard.app.checks.model import IMPROVED, PASS, CannotCompare, Verdict
from compileboard.app.checks.rules.counts import WHOLE_RUN
from compileboard.app.checks.rules.model_results import INCIDENTS
from compileboard.app.core.format import format_plural
from compileboard.app.reports.markdown import prose, render_markdown
from compileboard.app.reports.output import write_file

CHANGES = "Changed"
NO_FIXES: Mapping[str, str] = {}
_MAX_WIDTH = 60


def write_table(
    report: Check, *, every: bool = False, in_pull_request: bool = False
) -> Iterator[str]:
    yield report.headline
    for warning in report.warnings:
        yield f"warning: {warning}"
    shown = [
        verdict
        for rule in report.rules
        for verdict in rule.verdicts
        if every or verdict.outcome != PASS
    ]
    shown.sort(key=lambda rule_verdict: not rule_verdict.fails)
    if shown:
        yield ""
        yield from _align_columns([_format_cells(rule_verdict) for rule_verdict in shown])
    yield ""
    yield from _align_columns([(rule.name, _sum_up(rule)) for rule in report.rules])
    if report.model_counts is not None:
        yield ""
        yield f"{CHANGES}: {report.changes}"
    if report.failures or report.due:
        yield ""
        yield textwrap.fill(describe_next_step(report, in_pull_request=in_pull_request), 110)


def _format_cells(rule_verdict: Verdict) -> tuple[str, ...]:
    return (
        rule_verdict.verdict,
        rule_verdict.rule,
        one_line(rule_verdict.name),
        one_line(rule_verdict.detail),
    )


def _align_columns(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [min(_MAX_WIDTH, max(len(row[n]) for row in rows)) for n in range(len(rows[0]) - 1)]
    for row in rows:
        yield "  ".join(
            [*(cell.ljust(width) for cell, width in zip(row, widths)), row[-1]]
        ).rstrip()


def _sum_up(report: CheckedRule) -> str:
    if report.not_compared:
        return f"not compared: {report.not_compared}"
    return (
        ", ".join(f"{count} {word}" for word, count in report.counts.items())
        or "nothing to compare"
    )


def describe_next_step(report: Check, *, in_pull_request: bool = False) -> str:
    """Return what to do about a check that did not pass. In a pull request the base changes with
    every merge.
    """
    if not report.failures:
        names = ", ".join(rule.name for rule in report.due)
        return (
            f"The baseline has what {names} compare{'' if len(report.due) > 1 else 's'} and "
            "the run has not: measure "
            "it, or name the rules that are wanted (--rule)."
        )
    if all(failure.rule == INCIDENTS.name for failure in report.failures):
        return (
            "Mend what got worse, or acknowledge the incident, or ignore it with a reason, at "
            "/incidents/ID."
        )
    if report.baseline is None:
        return (
            "Mend what fails, or tell the rule another number (--threshold, --threshold-scale, "
            "--metric)."
        )
    kind, _space, name = report.baseline.partition(" ")
    if in_pull_request and kind == "run":
        return (
            "If these changes are meant, merge them: later pull requests are compared with the "
            "result. To let them "
            "pass, leave their rules out of the file of rules."
        )
    keep = (
        f"compileboard baseline update {name}"
        if kind == "baseline"
        else "compileboard baseline save NAME"
    )
    keep = "change that file" if report.baseline.endswith(".csv") else f"{keep} --run ID"
    if any(failure.outcome == IMPROVED for failure in report.failures):
        better = "--allow-improvement lets improvements pass"
        return f"To accept these changes, save a new baseline ({keep}); {better}."
    return f"To accept these changes, save a new baseline: {keep}."


def one_line(text: str) -> str:
    """Replace line breaks, and characters that could move a terminal's cursor, by spaces."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())


# Failures for people: singular and plural.
_NOUNS = {
    ("new-breaks", "NEW_BREAK"): ("new graph break", "new graph breaks"),
    ("new-recompiles", "NEW_RECOMPILE"): ("new recompile cause", "new recompile causes"),
    ("new-rerecordings", "NEW_RERECORDING"): (
        "new reason to record CUDA graphs again",
        "new reasons to record CUDA graphs again",
    ),
    ("speedup", "SLOWER"): ("slower model", "slower models"),
    ("compile-time", "SLOWER"): ("model that compiles slower", "models that compile slower"),
    ("export-time", "SLOWER"): ("model that exports slower", "models that export slower"),
    ("load-time", "SLOWER"): ("model that loads slower", "models that load slower"),
    ("package-size", "LARGER"): ("larger package", "larger packages"),
    ("scaling-efficiency", "LOWER"): ("model that scales worse", "models that scale worse"),
    ("quantized-error", "LARGER"): ("larger quantized error", "larger quantized errors"),
    ("accuracy", "FAIL"): ("model that fails accuracy", "models that fail accuracy"),
    ("graph-breaks", "FAIL"): ("model with more graph breaks", "models with more graph breaks"),
    ("memory", "FAIL"): ("model with more memory", "models with more memory"),
    ("incidents", "OPEN_INCIDENT"): ("open incident", "open incidents"),
}
_RESOLVED = {
    "new-breaks": "graph break",
    "new-recompiles": "recompile cause",
    "new-rerecordings": "reason to record CUDA graphs again",
}


def write_markdown(
    report: Check, fixes: Mapping[str, str] = NO_FIXES, *, in_pull_request: bool = False
) -> str:
    sides = " against ".join(title for title in (report.run, report.baseline) if title)
    return render_markdown(
        "check/report.md",
        report=report,
        fixes=fixes,
        heading=_write_heading(report),
        subject=[part for part in (report.subject, sides) if part],
        next_step=describe_next_step(report, in_pull_request=in_pull_request)
        if report.exit_code
        else "",
        notes=[
            verdict
            for rule in report.rules
            for verdict in rule.verdicts
            if verdict.outcome != PASS and not verdict.fails
        ],
        rule_counts=_count_rules(report),
        whole_run=WHOLE_RUN,
    )


def _write_heading(report: Check) -> str:
    if report.failures:
        counts: dict[tuple[str, str], set[object]] = {}
        for number, verdict in enumerate(report.failures):
            distinct = (
                verdict.new.fingerprint if verdict.new else number
            )  # models share a graph break
            counts.setdefault((verdict.rule, verdict.verdict), set()).add(distinct)
        if ("new-breaks", "NEW_BREAK") in counts:
            counts.pop(("graph-breaks", "FAIL"), None)  # counts the same
        ordered = sorted(
            counts, key=lambda key: list(_NOUNS).index(key) if key in _NOUNS else len(_NOUNS)
        )
        parts = []
        for key in ordered:
            count = len(counts[key])
            singular, plural = _NOUNS.get(key, (f"{key[1]} of {key[0]}",) * 2)
            parts.append(f"{count} {prose(singular if count == 1 else plural)}")
        return "❌ " + ", ".join(parts)
    if report.due:
        return f"⚠️ Not compared: {', '.join(checked.name for checked in report.due)}"
    compared = sum(not checked.not_compared for checked in report.rules)
    resolved = [
        format_plural(
            len({row.detail for row in checked.verdicts if row.verdict == "RESOLVED"}), noun
        )
        for checked in report.rules
        if (noun := _RESOLVED.get(checked.name)) and "RESOLVED" in checked.counts
    ]
    better = f"{', '.join(resolved)} resolved, nothing" if resolved else "Nothing"
    return f"✅ {better} worse by {format_plural(compared, 'rule')}"


def _count_rules(report: Check) -> str:
    lacking = sum(bool(checked.not_compared) for checked in report.rules)
    failing = len({verdict.rule for verdict in report.failures})
    passing = len(report.rules) - lacking - failing
    counts = ((failing, "failed"), (passing, "passed"), (lacking, "not compared"))
    return ", ".join(f"{count} {word}" for count, word in counts if count)


# Characters that XML 1.0 cannot contain, even escaped.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write_junit(report: Check) -> bytes:
    root = ElementTree.Element("testsuites", name="compileboard check")
    for rule in report.rules:
        suite = ElementTree.SubElement(root, "testsuite", name=rule.name)
        _list_cases(suite, rule)
        for name, path in _COUNTED.items():
            suite.set(name, str(len(suite.findall(path))))
        suite.set("time", "0")
    for name in ("tests", "failures", "errors"):
        root.set(name, str(len(root.findall(f"testsuite/{_COUNTED[name]}"))))
    ElementTree.indent(root)
    body: bytes = ElementTree.tostring(root, encoding="utf-8")
    return b'<?xml version="1.0" encoding="UTF-8"?>\n' + body + b"\n"


_COUNTED = {
    "tests": "testcase",
    "failures": "testcase/failure",
    "errors": "testcase/error",
    "skipped": "testcase/skipped",
}


def _list_cases(suite: ElementTree.Element, rule: CheckedRule) -> None:
    if rule.not_compared:
        case, message = _add_case(suite, rule.name, "the rule"), _clean(rule.not_compared)
        if rule.is_due:
            ElementTree.SubElement(case, "error", type="NOT_COMPARED", message=message)
        else:
            ElementTree.SubElement(case, "skipped", message=message)
        return
    by_name: dict[str, list[Verdict]] = {}
    for verdict in rule.verdicts:
        by_name.setdefault(verdict.name, []).append(verdict)
    for name, verdicts in by_name.items():
        case = _add_case(suite, rule.name, name)
        failing = [verdict for verdict in verdicts if verdict.fails]
        lines = [f"{verdict.verdict} {verdict.detail}".rstrip() for verdict in failing or verdicts]
        if failing:
            failure = ElementTree.SubElement(case, "failure", type=failing[0].verdict)
            failure.set("message", _clean(lines[0]))
            failure.text = _clean("\n".join(lines))
        else:
            ElementTree.SubElement(case, "system-out").text = _clean("\n".join(lines))


def _add_case(suite: ElementTree.Element, rule: str, name: str) -> ElementTree.Element:
    return ElementTree.SubElement(
        suite, "testcase", classname=f"compileboard.{rule}", name=_clean(name), time="0"
    )


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text)


STDOUT = "-"


def check_targets(targets: Mapping[str, str | None]) -> None:
    """Check that every output file, by its flag, can be written; None is a flag that was not given.

    Raises CannotCompare if one cannot be written or two are the same.
    """
    known: dict[str, str] = {}
    for flag, target in targets.items():
        if target is None:
            continue
        path = target if target == STDOUT else os.path.realpath(target)
        if path in known:
            where = "stdout" if path == STDOUT else target
            raise CannotCompare(
                f"{known[path]} and {flag} both go to {where}; give one of them another file"
            )
        known[path] = flag
        if path != STDOUT and (problem := _find_problem(path)):
            raise CannotCompare(f"{flag}: cannot write {target}: {problem}")


def _find_problem(path: str) -> str:
    folder = os.path.dirname(path)
    if os.path.isdir(path):
        return "it is a folder; give a file's name"
    if not os.path.isdir(folder):
        return f"there is no folder {folder}"
    if not os.access(folder, os.W_OK | os.X_OK) or (
        os.path.exists(path) and not os.access(path, os.W_OK)
    ):
        return "permission denied"
    return ""


def write_outputs(documents: Iterable[tuple[str | None, bytes]], table: Iterable[str]) -> None:
    """Write every document to its target; the table goes to stdout unless a document does.

    Raises OSError if a file or stdout cannot be written; a closed pipe on stdout is ignored.
    """
    text = None
    for target, body in documents:
        if target == STDOUT:
            text = body.decode()
        elif target:
            write_file(target, [body])
    try:
        if text is None:
            sys.stdout.writelines(f"{line}\n" for line in table)
        else:
            sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes stdout again at exit, which must not fail a second time.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
