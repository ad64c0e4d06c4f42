"""House rules of templates and scripts, and every page rendered with no name undefined."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

import pytest
from flask import Flask
from flask.testing import FlaskClient
from jinja2 import StrictUndefined

from tests.tools.observed import ROOT
from tests.unit.app.pages import list_pages

TEMPLATES = sorted((ROOT / "templates").rglob("*.html"))
SCRIPTS = sorted((ROOT / "static" / "js").glob("*"))
FORBIDDEN = {
    r"\|\s*safe\b": "marks other people's text as markup",
    r"<style\b|\sstyle\s*=": "an inline style",
    r"\son[a-z]+\s*=\s*[\"']": "an inline handler",
    r"<script(?![^>]*\bsrc=)(?![^>]*type=\"application/json\")": "an inline script",
    r"javascript:": "a script as an address",
    r"autoescape\s+false": "no escaping",
    r"(?:src|href)=\"(?:https?:)?//": "something from elsewhere",
}
UNSAFE = r"\b(?:innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval|new Function)\b"


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", TEMPLATES, ids=_name)
def test_template_keeps_the_house_rules(path: Path) -> None:
    text = path.read_text()
    if (
        "reports" not in path.parts
    ):  # a report is one file that opens offline: it carries its style and script
        offences = [why for pattern, why in FORBIDDEN.items() if re.search(pattern, text)]
        assert offences == []


@pytest.mark.parametrize("path", SCRIPTS, ids=_name)
def test_script_writes_text_as_text(path: Path) -> None:
    text = path.read_text()
    assert re.findall(UNSAFE, text) == []


def test_the_app_stops_at_an_undefined_name(shared_app: Flask) -> None:
    assert shared_app.jinja_env.undefined is StrictUndefined
    assert shared_app.jinja_env.autoescape is not False


@pytest.mark.parametrize("kind", list_pages)
def test_every_page_renders(
    recorded_client: FlaskClient, recorded_reader: sqlite3.Connection, kind: str
) -> None:
    for page in list_pages[kind](recorded_reader):
        answer = recorded_client.get(page)
        assert answer.status_code == 200, page
        if kind != "health":
            assert answer.text.count("<h1") == 1, page
            ids = re.findall(r'\sid="([^"]+)"', answer.text)
            assert len(ids) == len(set(ids)), page


def test_scripts_of_a_page_are_files_of_ours(recorded_client: FlaskClient) -> None:
    text = recorded_client.get("/trends").text
    sources = re.findall(r'<script[^>]*src="([^"]+)"', text)
    assert len(sources) == 7
    for source in sources:
        assert source.startswith("/static/")
        with recorded_client.get(source) as answer:
            assert answer.status_code == 200
            assert answer.headers["Cache-Control"] == "public, max-age=31536000, immutable"
