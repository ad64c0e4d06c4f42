"""Listings of bytecode as rows: torch 2.13's on Python 3.11, and those of this Python."""

from __future__ import annotations

import dis
import json
import sqlite3
from pathlib import Path

import pytest
from flask.testing import FlaskClient
from hypothesis import given
from hypothesis import strategies as st

from compileboard.app.artifacts import text as bytecode
from compileboard.app.artifacts.text import BytecodeRow, parse_bytecode
from compileboard.collectors.store.codec import pack_large
from tests.unit.app.hostile import MARKUP
from tests.unit.app.seed import add_run, insert

RECORDED: dict[str, str] = json.loads(
    (Path(__file__).parents[3] / "data" / "code" / "bytecode.json").read_text(encoding="utf-8")
)
ORIGINAL = "torch_dynamo_resume_in_f_at_5_ORIGINAL_BYTECODE"
WITHOUT_OFFSETS = """\
  2           RESUME                   0

  3           LOAD_GLOBAL              1 (len + NULL)
       L1:    LOAD_FAST                0 (alist)
              CALL                     1
              RETURN_VALUE

  --   L2:    RERAISE                  0
ExceptionTable:
  L1 to L2 -> L2 [0] lasti
"""


def test_recorded_listing_has_each_instruction() -> None:
    listing = parse_bytecode(RECORDED[ORIGINAL])
    assert listing is not None and listing.has_offsets
    assert listing.row_count == len(
        [line for line in RECORDED[ORIGINAL].split("\n") if line.strip()]
    )
    assert not any(row.remark for row in listing.rows)
    assert listing.rows[0] == BytecodeRow(1, "5", "0", "", "COPY_FREE_VARS", "1")
    [target] = [row for row in listing.rows if row.target]
    assert (target.offset, target.opcode) == ("58", "POP_TOP")
    assert [row.line for row in listing.rows if row.line] == ["5", "6", "7"]
    assert any(row.value.startswith("<code object <listcomp>") for row in listing.rows)


def test_listing_of_newer_python_has_labels_instead_of_offsets() -> None:
    listing = parse_bytecode(WITHOUT_OFFSETS)
    assert listing is not None and not listing.has_offsets
    assert [(row.line, row.target, row.opcode) for row in listing.rows[:3]] == [
        ("2", "", "RESUME"),
        ("3", "", "LOAD_GLOBAL"),
        ("", "L1", "LOAD_FAST"),
    ]
    assert [row.remark for row in listing.rows if row.remark] == [
        "ExceptionTable:",
        "L1 to L2 -> L2 [0] lasti",
    ]


def test_this_pythons_listing_is_read_as_its_instructions() -> None:
    code = parse_bytecode.__code__
    listing = parse_bytecode(dis.Bytecode(code).dis())
    assert listing is not None
    rows = [row for row in listing.rows if row.opcode]
    assert [row.opcode for row in rows] == [
        instruction.opname for instruction in dis.get_instructions(code)
    ]


@pytest.mark.parametrize("text", ["", "nothing here", "\n\n", "12 34"])
def test_what_has_no_instruction_is_no_listing(text: str) -> None:
    assert parse_bytecode(text) is None


@given(st.text(alphabet="ABCL1:>- ()\n_9"))
def test_odd_text_never_raises(text: str) -> None:
    listing = parse_bytecode(text)
    assert listing is None or listing.row_count >= len(listing.rows) > 0


@pytest.mark.parametrize(
    "text", [RECORDED[ORIGINAL], WITHOUT_OFFSETS, f"  5   0 LOAD_CONST   1 ({MARKUP})"]
)
def test_page_shows_a_listing_as_columns(
    client: FlaskClient, store: sqlite3.Connection, text: str
) -> None:
    add_run(store, "R")
    payload = insert(
        store, "payloads", digest=b"x" * 16, size_bytes=len(text), body=pack_large(text.encode())
    )
    values = {
        "process_id": "p",
        "sequence": 1,
        "name": ORIGINAL,
        "encoding": "string",
        "state": "kept",
        "time_us": 1,
    }
    number = insert(store, "artifacts", run_id="R", payload_id=payload, **values)
    store.commit()
    page = client.get(f"/runs/R/artifacts/{number}").text
    assert "Opcode" in page and "as dynamo got it" in page and 'id="L1"' in page
    assert ("Offset" in page) == (text != WITHOUT_OFFSETS)
    assert "<img" not in page and 'class="source"' not in page


def test_a_long_listing_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bytecode, "MAX_ROWS", 3)
    listing = parse_bytecode(RECORDED[ORIGINAL])
    assert listing is not None and (len(listing.rows), listing.row_count > 3) == (3, True)
