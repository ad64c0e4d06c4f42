"""Write what a check found as JUnit XML: a testsuite a rule, a testcase a model."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from compileboard.app.analysis.gates.model import Verdict
from compileboard.app.checks.decide import Report, RuleReport

# What XML 1.0 cannot say at all, escaped or not.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write_junit(report: Report) -> bytes:
    """Return the document."""
    root = ElementTree.Element("testsuites", name="compileboard check")
    totals = {"tests": 0, "failures": 0, "errors": 0, "skipped": 0}
    for it in report.rules:
        suite = ElementTree.SubElement(root, "testsuite", name=it.rule.name)
        for name, count in _fill(suite, report, it).items():
            suite.set(name, str(count))
            totals[name] += count
        suite.set("time", "0")
    for name in ("tests", "failures", "errors"):
        root.set(name, str(totals[name]))
    ElementTree.indent(root)
    body: bytes = ElementTree.tostring(root, encoding="utf-8")
    return b'<?xml version="1.0" encoding="UTF-8"?>\n' + body + b"\n"


def _fill(suite: ElementTree.Element, report: Report, rule: RuleReport) -> dict[str, int]:
    counts = {"tests": 0, "failures": 0, "errors": 0, "skipped": 0}
    if rule.lacks:
        case = _case(suite, rule.rule.name, "the rule")
        if rule.is_due:
            ElementTree.SubElement(case, "error", type="NOT_COMPARED", message=_clean(rule.lacks))
            return counts | {"tests": 1, "errors": 1}
        ElementTree.SubElement(case, "skipped", message=_clean(rule.lacks))
        return counts | {"tests": 1, "skipped": 1}
    by_name: dict[str, list[Verdict]] = {}
    for it in rule.verdicts:
        by_name.setdefault(it.name, []).append(it)
    for name, verdicts in by_name.items():
        case = _case(suite, rule.rule.name, name)
        counts["tests"] += 1
        failing = [it for it in verdicts if report.fails(it)]
        said = "\n".join(f"{it.word} {it.detail}".rstrip() for it in failing or verdicts)
        if failing:
            counts["failures"] += 1
            failure = ElementTree.SubElement(case, "failure", type=failing[0].word)
            failure.set("message", _clean(f"{failing[0].word} {failing[0].detail}".rstrip()))
            failure.text = _clean(said)
        else:
            ElementTree.SubElement(case, "system-out").text = _clean(said)
    return counts


def _case(suite: ElementTree.Element, rule: str, name: str) -> ElementTree.Element:
    return ElementTree.SubElement(suite, "testcase", classname=f"compileboard.{rule}", name=_clean(name), time="0")


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text)
