"""Full-text search: parsing of a query for FTS5, and the matches."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, NamedTuple

from compileboard.app.core.engine import Engine
from compileboard.app.core.fields import (
    CompileId,
    CompileKey,
    Count,
    FunctionName,
    RunId,
    name_ids,
)
from compileboard.app.core.page import FilterError, Key, decode_cursor, encode_cursor
from compileboard.app.core.schema import PRIVATE, one_of, published
from compileboard.app.runs.queries import list_values
from compileboard.collectors.fixes.titles import strip_ticks
from compileboard.collectors.store.rollups import DEFINITIONS
from compileboard.collectors.store.search import KINDS, kind_tag, list_pending, read_text, run_tag

LONGEST = 300  # characters searched for
MAX_TERMS = 12
MAX_WORDS = 20  # per term, as in a pasted line of code
MIN_PREFIX_LENGTH = 3  # shorter ones match too many words of a big index

_TERM = re.compile(r'(-?)"([^"]*)"?|(\S+)')
_WORD = re.compile(r"[^\W_]+")  # a word according to unicode61


@dataclass(frozen=True)
class Term:
    words: tuple[str, ...]
    prefix: bool = False

    @property
    def match(self) -> str:
        return f'"{" ".join(self.words)}"' + (" *" if self.prefix else "")


@dataclass(frozen=True)
class SearchTerms:
    """The terms that must and must not occur; `is_cut` means that further terms were dropped."""

    included: tuple[Term, ...] = ()
    excluded: tuple[Term, ...] = ()
    is_cut: bool = False

    @property
    def match(self) -> str | None:
        if not self.included:
            return None
        included = " AND ".join(term.match for term in self.included)
        excluded = " OR ".join(term.match for term in self.excluded)
        return f"({included}) NOT ({excluded})" if excluded else f"({included})"


def read_terms(text: str) -> SearchTerms:
    included: list[Term] = []
    excluded: list[Term] = []
    is_cut = len(text) > LONGEST
    text = text[:LONGEST]
    for match in _TERM.finditer(text):
        quoted = match[3] is None
        minus, body = (
            (match[1], match[2]) if quoted else ("-" if match[3].startswith("-") else "", match[3])
        )
        words = tuple(_WORD.findall(body)[:MAX_WORDS])
        if not words:
            continue
        if len(included) + len(excluded) >= MAX_TERMS:
            is_cut = True
            break
        last = not quoted and match.end() == len(text.rstrip())
        prefix = last and not minus and body[-1:].isalnum() and len(words[-1]) >= MIN_PREFIX_LENGTH
        (excluded if minus else included).append(Term(words, prefix))
    return SearchTerms(tuple(included), tuple(excluded), is_cut)


# Texts of a kind; beyond it the count is "500 or more", so that a common word costs no more
COUNTED = 500
SAMPLE = 4  # per kind, if all kinds are shown

# The index has runs and kinds as words, and so finds the newest of a kind without reading the
# others.
FOUND_SQL = """
select rowid as id
from search_words
where search_words match :match
  and rowid < :before
order by rowid desc
limit :limit
"""
HIT_SQL = """
select
  d.id, d.run_id, coalesce(n.title, r.name) as run_name, d.kind, d.ref_id, d.compile_key,
  c.compile_id,
  f.name as function, d.title, d.payload_id, d.body, d.character_count, a.encoding
from search_documents as d
join runs as r on r.id = d.run_id
left join run_annotations as n on n.run_id = d.run_id
left join compiles as c on c.id = d.compile_key
left join functions as f on f.id = c.function_id
left join artifacts as a on a.id = d.ref_id and d.kind = 'artifact'
where d.id = :id
limit 1
"""
STATE_SQL = """
select
  (select count(*) from runs where :run_id is null or id = :run_id) as run_count,
  (select count(*) from search_runs where :run_id is null or run_id = :run_id) as begun_count,
  (select count(*) from sealed_runs where :run_id is null) as sealed_count,
  (select state from runs where id = :run_id) as state
"""

# Sealed runs come after the newest ones, and are found before the others are read.
SEALED_SQL = """
select s.run_id
from runs as r
cross join sealed_runs as s on s.run_id = r.id
order by r.started_us desc, r.id desc
limit :limit
"""
File = tuple[str, sqlite3.Connection]  # a sealed run, and the connection to its texts


MODELS_SQL = """
select model, count(distinct suite) as suite_count, min(suite) as first_suite
from series
where instr(lower(model), lower(:text)) > 0
group by model
order by length(model), model
limit :limit
"""


def list_models(engine: Engine, text: str, limit: int) -> list[tuple[str, str]]:
    """List models whose name contains a text, each with its suites as text."""
    rows = engine.rows(MODELS_SQL, {"text": text, "limit": limit})
    return [
        (
            row["model"],
            row["first_suite"] if row["suite_count"] == 1 else f"{row['suite_count']} suites",
        )
        for row in rows
    ]


RESULT_SUITES_SQL = "select distinct suite from series"
SUITE_RUNS_SQL = """
select suite, count(*) as run_count
from runs
where suite $in(:suites)
  and source <> 'trial'
group by suite
"""
RESULT_RUNS_SQL = """
select suite, count(distinct run_id) as run_count
from run_summaries
where definition $in(:definitions)
  and suite $in(:suites)
group by suite
"""
_MAX_SUITES = 1000


def list_suites(engine: Engine, text: str, limit: int) -> list[tuple[str, int]]:
    """List suites of runs or results whose name contains a text, each with the number of its
    runs.
    """
    of_runs = set(list_values(engine, "suite", _MAX_SUITES))
    of_results = {str(row["suite"]) for row in engine.rows(RESULT_SUITES_SQL)}
    found = [suite for suite in of_runs | of_results if text.lower() in suite.lower()]
    found = sorted(found, key=lambda suite: (len(suite), suite))[:limit]
    counts: dict[str, int] = {}
    for statement, known in ((SUITE_RUNS_SQL, of_runs), (RESULT_RUNS_SQL, of_results - of_runs)):
        if suites := [suite for suite in found if suite in known]:
            values = {"suites": suites, "definitions": list(DEFINITIONS)}
            rows = engine.rows(statement, values)
            counts |= {row["suite"]: row["run_count"] for row in rows}
    return [(suite, counts[suite]) for suite in found if suite in counts]


# Of these, backticks are torch's marks around code; of programs, a part of the code.
_WITH_TICKS = ("graph_break", "recompile", "issue", "failure", "result", "cudagraph_skip")
KIND_WORDS = {
    "graph_break": ("Graph breaks", "reason, explanation, hints and the line of code"),
    "recompile": ("Recompiles", "the failed guards with their sources and lines of code"),
    "rerecording": ("CUDA graphs recorded again", "what did not fit, the inputs that moved"),
    "issue": ("Failures across runs", "type, operation and message without values"),
    "failure": ("Failures and skipped frames", "exceptions and their messages"),
    "result": ("Failed models", "the status and message of a model that failed"),
    "repro": ("Repros", "the failure, the operation and the graph of the program"),
    "function": ("Functions", "compiled functions and their files"),
    "frame": ("Stack frames", "files and lines in the callers of compiles"),
    "symbol": ("Symbolic shapes", "symbols, guards on them, sources and lines of code"),
    "cache_lookup": ("Cache reasons", "why a cache was bypassed"),
    "cudagraph_skip": ("CUDA graph skips", "why a CUDA graph was not used"),
    "artifact": ("Artifacts", "graphs, generated code, guards and whatever else torch wrote"),
}
KindOfText = Annotated[str, one_of(KINDS), "What kind of text it is."]


@dataclass(frozen=True)
class SearchLine:
    """A line with some of the words, truncated if long."""

    line: Annotated[
        int | None,
        "Its number in the artifact's text, from 1; null where the text is not one of lines.",
    ]
    pieces: tuple[tuple[str, bool], ...] = field(metadata=PRIVATE)

    @property
    @published
    def text(self) -> Annotated[str, "The line."]:
        return "".join(text for text, _marked in self.pieces)

    @property
    @published
    def found(self) -> Annotated[list[str], "The matching words."]:
        return [text for text, marked in self.pieces if marked]


@dataclass(frozen=True)
class SearchHit:
    """A text that contains every word."""

    run_id: RunId
    run_name: Annotated[str, "The run's title, or its name."]
    kind: KindOfText
    ref_id: Annotated[int | str, "`id` of what `kind` names, as its own lists have it."]
    compile_key: CompileKey
    compile_id: CompileId
    function: FunctionName
    title: Annotated[str, "Name of the text."]
    text: str = field(metadata=PRIVATE)
    # Whether line numbers are those of the artifact's page.
    has_lines: bool = field(metadata=PRIVATE)
    lines: Annotated[
        Sequence[SearchLine], "The three best lines; none where only its title has the words."
    ] = ()


@dataclass(frozen=True)
class SearchGroup:
    """Results of one kind."""

    kind: KindOfText
    count: Annotated[Count, f"Texts that were found; at most {COUNTED} are counted."]
    is_more: Annotated[bool, "Whether there are more than that."]
    next: Annotated[str | None, "`cursor` of the next page of the kind that was asked for."]
    hits: Annotated[
        Sequence[SearchHit],
        "The matches, the last indexed first; none of a kind that was not requested.",
    ]

    @property
    def label(self) -> str:
        return KIND_WORDS[self.kind][0]

    @property
    def meaning(self) -> str:
        return KIND_WORDS[self.kind][1]


@dataclass(frozen=True)
class IndexState:
    """Progress of the index: the number of runs that are not fully indexed, and whether the index
    has any text.

    `file_count` sealed runs were searched in their files; `unsearched_count` older ones were not.
    """

    run_count: int
    pending_count: int
    begun_count: int
    is_running: bool
    file_count: int = 0
    unsearched_count: int = 0

    @property
    def is_empty(self) -> bool:
        return self.begun_count == 0


def check_kind(kind: str | None) -> str | None:
    if kind and kind not in KINDS:
        raise FilterError(f"kind: {kind[:40]!r} is not one of {', '.join(KINDS)}")
    return kind or None


def list_newest_sealed(reader: sqlite3.Connection, limit: int) -> list[str]:
    return [row["run_id"] for row in reader.execute(SEALED_SQL, {"limit": limit})]


def get_index_state(
    reader: sqlite3.Connection, run_id: str | None = None, file_count: int = 0
) -> IndexState:
    row = reader.execute(STATE_SQL, {"run_id": run_id}).fetchone()
    pending = list_pending(reader)
    count = len(pending) if run_id is None else pending.count(run_id)
    unsearched_count = max(row["sealed_count"] - file_count, 0)
    run_count, begun_count = row["run_count"] - unsearched_count, row["begun_count"] + file_count
    return IndexState(
        run_count, count, begun_count, row["state"] == "running", file_count, unsearched_count
    )


def search(
    reader: sqlite3.Connection,
    terms: SearchTerms,
    *,
    run_id: str | None = None,
    kind: str | None = None,
    cursor: str | None = None,
    limit: int = SAMPLE,
    files: Sequence[File] = (),
    kinds: Iterable[str] = KINDS,
) -> list[SearchGroup]:
    """Find texts by kind: a sample of each kind, or one page of one kind and the counts of the
    others.

    The last indexed text comes first, then those of `files` in their order. Texts are not ranked,
    so a common word costs no more than a rare one.
    """
    after = decode_cursor(cursor, int, str)
    match = terms.match
    if match is None:
        return []
    groups = []
    for candidate in kinds:
        tags = (
            kind_tag(candidate)
            if run_id is None
            else f"({run_tag(run_id)} AND {kind_tag(candidate)})"
        )
        words = f"tags : {tags} AND body : {match}"
        most = limit if candidate == kind else SAMPLE if kind is None else 0
        count, page = _find_in_all(
            words, [("", reader), *files], after if candidate == kind else None, most + 1
        )
        if not count:
            continue
        following = (
            encode_cursor(page[most - 1].row_id, page[most - 1].run_id)
            if len(page) > most
            else None
        )
        hits = tuple(hit for text in page[:most] if (hit := _get_hit(text.reader, text.row_id)))
        following = following if candidate == kind else None
        groups.append(SearchGroup(candidate, min(count, COUNTED), count > COUNTED, following, hits))
    return groups


class _Text(NamedTuple):
    run_id: str
    reader: sqlite3.Connection
    row_id: int


def _find_in_all(
    match: str, files: Sequence[File], after: tuple[Key, ...] | None, max_count: int
) -> tuple[int, list[_Text]]:
    page: list[_Text] = []
    count, is_behind = 0, after is None
    for run_id, reader in files:
        row_ids = _find_rows(reader, match, max_count=max(COUNTED, max_count))
        count += min(len(row_ids), COUNTED + 1)
        if after is not None and run_id == after[1]:
            is_behind = True
            row_ids = _find_rows(reader, match, before=after[0], max_count=max_count)
        if is_behind:
            page += [_Text(run_id, reader, row_id) for row_id in row_ids[: max_count - len(page)]]
    return count, page


def _find_rows(
    reader: sqlite3.Connection, match: str, *, before: object = None, max_count: int = COUNTED
) -> list[int]:
    values = {
        "match": match,
        "before": 2**63 - 1 if before is None else before,
        "limit": max_count + 1,
    }
    return [row["id"] for row in reader.execute(FOUND_SQL, values)]


def _get_hit(reader: sqlite3.Connection, row_id: int) -> SearchHit | None:
    row = reader.execute(HIT_SQL, {"id": row_id}).fetchone()
    if row is None:
        return None
    try:
        text = read_text(reader, row)
    except ValueError:  # damaged on disk, as the artifact's page shows
        text = ""
    if row["kind"] in _WITH_TICKS:
        row, text = {**row, "title": strip_ticks(row["title"])}, strip_ticks(text)
    names = (
        "run_id",
        "run_name",
        "kind",
        "ref_id",
        "compile_key",
        "compile_id",
        "function",
        "title",
    )
    has_lines = row["payload_id"] is not None and row["encoding"] == "string"
    is_of_content = row["kind"] in ("graph_break", "rerecording", "issue", "repro", "function")
    values = name_ids(row, "ref_id") if is_of_content else row
    return SearchHit(**{name: values[name] for name in names}, text=text, has_lines=has_lines)
