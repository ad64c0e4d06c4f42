"""The words of pages, reports, commands, the API and the documents: one term a concept, short help, no subtitles."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from compileboard.app import create_app
from compileboard.app.cli.main import dashboard
from compileboard.collectors.cli.main import collect
from tests.contract.test_docs import DOCS, list_commands

ROOT = Path(__file__).resolve().parents[2]
MOST_HELP_WORDS = 12
# Retired wording: the term to write instead.
RETIRED = {
    r"(?<!CI )(?<!cron )(?<!the )(?<!--)\bjobs?\b(?! summary)": "run",
    r"attempts? to compile": "compile",
    r"compiled again|compiled a second time": "recompiled",
    r"analys[ie]s (was )?beg[au]n again|analysis began again": "restart",
    r"left to run eagerly|\bgave up\b|runs? eagerly from then on": "fell back to eager",
    r"\blook-ups?\b|\blooked up\b": "lookup",
    r"\bdistinct breaks?\b|\bfound breaks?\b": "graph break",
    r"\blimits? hit\b|\blimit hits\b|\bhits? (the|a) (recompile )?limit": "recompile limit reached",
    r"\bwhat came\b|\bcame in\b|\bcame with\b|\bwhere it came\b": "a noun: commit range, input, occurrences",
    r"\bwho knows\b|\bnobody\b|\bwhat people\b|\bwhat was said\b|\bwithout saying\b|\b(was )?not said\b": "a fact",
    r"\bnot defined\b": "not recorded, not checked",
    r"\blasting changes?\b|\bfindings?\b": "incident, change",
    r"\btaken up\b|\bno matter\b|\banswered yet\b": "acknowledged, ignored",
    r"\bwhat to do\b|\badvice\b": "fix",
    r"\bpartings?\b|\bparts? ways\b": "first divergence",
    r"\bvanished\b|\blittle by little\b": "stopped reporting, gradual change",
    r"\bmeasured as\b|\bother ways?\b": "configuration",
    r"\bdefinitions?\b": "formula, how this is computed",
    r"\bhow sure\b": "confidence",
    r"\btable twins?\b|\bthe same as a table\b": "table",
    r"\bwithh[eo]ld\b": "source hidden",
    r"\bmoments?\b": "instant, time",
    r"\bspeaks? of\b|\btells? apart\b|\btells? of\b|\bsaid\b|\bsays so\b": "a verb of the field",
    r"\bwhat is judged\b|\bwhat was\b(?= ?$)": "base, new",
    r"\bnothing (was )?lost\b|\brecords? lost\b": "dropped records",
    r"\bthrown away\b|\bbeg[au]n again\b": "restart",
    r"\btold to\b|\btells? people\b": "alerts: sent",
    r"\bpassed over\b": "skipped",
    r"\bword for it\b": "status",
    r"\bmay come (out )?of\b": "most, largest",
    r"\bthan the one (compiled|asked)\b": "differed from the compiled",
    r"\bmoved with eager\b|\bdid otherwise\b": "changed, differ",
    r"\bsays? (why|more|most|who)\b|\bsays so\b": "where the reason is",
    r"\d %": "a percent sign without a space",
}
# Texts with a retired word that is another's or another concept: (what the text has, why it stays).
ALLOWED = (
    ("<source withheld", "the mark in databases that are recorded already"),
    ("<withheld>", "the mark in databases that are recorded already"),
    ("**VANISHED**", "the status of a rule, the value of an exit code's table"),
    ("left_out, withheld", "the API's value of an artifact's state"),
    ("class definitions", "torch's words for the class statement"),
    ("added to what came in", "the source of a demo model, whose history has hashes"),
    (".definition", "a column of the database"),
    ("{% import", "names of templates' variables"),
)
# Documents of CI, where a job is GitHub's, and of figures and open ends that quote what was measured and asked.
CI_PAGES = {"github-action.md", "check.md", "site.md"}
EXEMPT_PAGES = {"benchmarks.md"}


def strip_jinja(text: str) -> str:
    """Return a template with its comments, statements and tags replaced by the words in their quotes."""

    def quoted(match: re.Match[str]) -> str:
        shown = [
            part for part in re.findall(r'"([^"{}]*)"', match.group()) if " " in part.strip() or part[:1].isupper()
        ]
        return f" {' | '.join(shown)} " + "\n" * match.group().count("\n")

    text = re.sub(r"\{#.*?#\}", lambda match: "\n" * match.group().count("\n"), text, flags=re.DOTALL)
    text = re.sub(r"\{[{%].*?[%}]\}", quoted, text, flags=re.DOTALL)
    return re.sub(
        r"<[^>]*>", lambda m: " ".join(re.findall(r'(?:title|aria-label|placeholder)="([^"]*)"', m.group())), text
    )


def list_page_texts() -> Iterator[tuple[str, str]]:
    for path in sorted((ROOT / "templates").rglob("*.html")):
        for number, line in enumerate(strip_jinja(path.read_text(encoding="utf-8")).splitlines(), 1):
            yield f"{path.relative_to(ROOT)}:{number}", line
    for path in sorted((ROOT / "static" / "js").glob("*.mjs")):
        code = re.sub(r"^\s*//.*$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
        for text in re.findall(r'"([^"\n]* [^"\n]*)"|`([^`\n]* [^`\n]*)`', code):
            yield str(path.relative_to(ROOT)), "".join(text)


def list_string_texts() -> Iterator[tuple[str, str]]:
    """Yield the string constants of the program that may reach people: not docstrings, not SQL."""
    for path in sorted(path for folder in ("app", "collectors") for path in (ROOT / folder).rglob("*.py")):
        if path.is_relative_to(ROOT / "app" / "ci"):
            continue  # GitHub's jobs and their summaries
        tree = ast.parse(path.read_text(encoding="utf-8"))
        docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
                is_sql = re.match(r"\s*(select|with|insert|update|delete|create|from|\(|, x)\b", node.value)
                if " " in node.value and not is_sql:
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", node.value


def list_doc_texts() -> Iterator[tuple[str, str]]:
    """Yield the prose of the documents: without code, and without the open ends that quote others."""
    for name, text in DOCS.items():
        if name not in EXEMPT_PAGES:
            prose = re.sub(r"^```.*?^```", "", text.partition("\n## What is left\n")[0], flags=re.DOTALL | re.MULTILINE)
            for line in re.sub(r"`[^`\n]*`|\]\([^)]*\)|<!--.*?-->", " ", prose).splitlines():
                yield name, line


def list_api_texts() -> Iterator[tuple[str, str]]:
    document = create_app().test_client().get("/api/v1/openapi.json").get_json()

    def walk(value: Any) -> Iterator[str]:
        for key, child in value.items() if isinstance(value, dict) else enumerate(value):
            if isinstance(child, str) and key in ("description", "summary"):
                yield child
            elif isinstance(child, (dict, list)):
                yield from walk(child)

    for text in walk(document):
        yield "openapi.json", re.sub(r"`[^`]*`", " ", text)


def list_help_texts() -> Iterator[tuple[str, str]]:
    for group in (collect, dashboard):
        for name, command in list_commands(group):
            yield name, command.help or ""
            yield from ((name, str(getattr(option, "help", "") or "")) for option in command.params)
            assert isinstance(command, click.Command)


@pytest.mark.parametrize(
    "list_texts", [list_page_texts, list_string_texts, list_doc_texts, list_api_texts, list_help_texts]
)
def test_retired_words_stay_out(list_texts: Any) -> None:
    retired = []
    count = 0
    for where, text in list_texts():
        count += 1
        if any(part in text for part, _reason in ALLOWED):
            continue
        for pattern, instead in RETIRED.items():
            if "job" in pattern and where in CI_PAGES:
                continue
            if match := re.search(pattern, text, re.IGNORECASE):
                retired.append(f"{where}: “{match.group()}”, write {instead}: {' '.join(text.split())[:120]}")
    assert count > 100
    assert retired == []


def list_help() -> Iterator[tuple[str, str]]:
    """Yield the notes of panels and tiles, titles and placeholders of all templates."""
    for path in sorted((ROOT / "templates").rglob("*.html")):
        text = re.sub(r"\{#.*?#\}", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        for match in re.finditer(r'(?:\bnote=|set note = |\btitle=|placeholder=)"([^"]+)"', text):
            yield str(path.relative_to(ROOT)), re.sub(r"\{[{%].*?[%}]\}", "x", match.group(1))


def test_help_is_short_and_one_sentence() -> None:
    texts = list(list_help())
    assert len(texts) > 100
    assert [text for text in texts if len(text[1].split()) > MOST_HELP_WORDS or ";" in text[1]] == []


def test_buttons_and_headings_are_in_sentence_case() -> None:
    texts = []
    for path in sorted((ROOT / "templates").rglob("*.html")):
        text = path.read_text(encoding="utf-8")
        texts += re.findall(r"<(?:button|h[1-4])\b[^>]*>([^<{]+)<", text)
        texts += re.findall(r'page\.(?:panel|empty|head)\("([^"]+)"', text)
    assert len(texts) > 100
    ours = re.compile(r"^[A-Z0-9←−+×…]|^(torch|the|by|on|and)\b|^\W*$")
    assert [text for text in texts if text.strip() and not ours.match(text.strip())] == []
