"""Fields shared by the rows of several subjects: type, meaning and unit."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from compileboard.app.core.engine import Row
from compileboard.app.core.schema import DURATION_UNIT, TIME_UNIT, Keywords, published
from compileboard.collectors.contract.categories import label_category
from compileboard.collectors.contract.fingerprints import ID_TEXT, format_id
from compileboard.collectors.contract.library_names import is_harness_step
from compileboard.collectors.contract.records import TABLES
from compileboard.collectors.fixes.fix import BreakFacts
from compileboard.collectors.fixes.titles import (
    label_break,
    name_source,
    strip_ticks,
    title_recompile,
)

_BETWEEN = re.compile(r", (?![^\[]*\])")  # separates the sources of a cause with several
_DIM = re.compile(r"\bat index (\d{1,4})\b")
Count = Annotated[int, Keywords(minimum=0)]
TimeUs = Annotated[int, TIME_UNIT]
DurationUs = Annotated[int, DURATION_UNIT]

RowId = Annotated[int, "Number of the row in this database."]
ID_PATTERN = Keywords(pattern=f"^{ID_TEXT.pattern}$")
ContentId = Annotated[str, ID_PATTERN]
BreakId = Annotated[ContentId, "`id` of the graph break."]
CauseId = Annotated[ContentId, "`id` of the cause."]
RunId = Annotated[str, "The run's id."]
Rank = Annotated[int | None, "Rank of the process in a distributed run."]
Pid = Annotated[int | None, "Process number of the operating system."]
ProcessId = Annotated[str, "The process's id."]
ProcessName = Annotated[
    str, "Distinguishes its process within the run: model, rank, pid; empty for the only one."
]
SequenceNumber = Annotated[int, "Number of the event in its process."]
Generation = Annotated[Count, "Calls of `torch._dynamo.reset()` in the process before it."]
CompileKey = Annotated[int | None, "`id` of the compile, as in `/runs/<run_id>/compiles/<key>`."]
CompileId = Annotated[str | None, "Compile id as torch prints it: `0/1`."]
FunctionName = Annotated[str | None, "Qualified name of the function."]
FileName = Annotated[str | None, "Its file: path in the repository, or module path."]
LineNumber = Annotated[int | None, "Line number."]
CalledAt = Annotated[str | None, "For a library's function, the user's line that called it."]
SourceLine = Annotated[str | None, "Source text of the line; null with `--no-source`."]
CompileUs = Annotated[DurationUs | None, "Time of the compile, forward and backward."]
CompilesUs = Annotated[DurationUs | None, "Time of the compiles that had it."]
CauseRecompiles = Annotated[
    Count, "Recompiles that would not have happened without it: each counts for one cause."
]
PartialRecompiles = Annotated[
    Count,
    "Of these, those of which not every failed guard is known: more may have varied.",
]
PageUrl = Annotated[str | None, "torch's public page on this kind of graph break."]
RecompiledFrom = Annotated[str | None, "Compile id of the newest cache entry, whose guard failed."]
RecompileCategory = Annotated[str | None, "Kind of guard that caused the recompile."]
EventTime = Annotated[TimeUs, "Time of the event."]
StartTime = Annotated[TimeUs, "Start."]
Stack = Annotated[Sequence[dict[str, Any]], "Frames {file, line, name, code}, outermost first."]
Title = Annotated[str | None, "Its title, set by a person."]
Fingerprint = Annotated[str, "Identifies it, the same in every database."]
GbId = Annotated[str | None, "torch's id of this kind of graph break: `GB0059`."]
GbType = Annotated[str | None, "torch's name of this kind of graph break."]
BreakReason = Annotated[str, "Reason for the break, in torch's words."]
Explanation = Annotated[str | None, "torch's explanation of the reason."]
Hints = Annotated[tuple[str, ...], "torch's hints."]
Category = Annotated[
    str,
    "Kind of guard that failed, `several` if kinds differ, `unknown` if not known.",
]
CategoryLabel = Annotated[str, "The category in words."]
GuardSource = Annotated[str | None, "The guard's source expression."]
# Columns that lists select of a graph break, as d, and of a recompile cause, as u.
BREAK_COLUMNS = TABLES["distinct_breaks"].select_sql(
    "d", "id", "fingerprint", "function_id", "line"
)
BREAK_KIND = "coalesce(d.gb_type, d.reason)"
CAUSE_COLUMNS = TABLES["recompile_causes"].select_sql("u", "id", "fingerprint", "function_id")
SORT_HELP = "The order, largest first; with `.asc` smallest first."


class PublicBreak:
    gb_id: GbId

    @property
    @published
    def page_url(self) -> PageUrl:
        return gb_url(self.gb_id)


def make_facts(row: Row | Mapping[str, Any]) -> BreakFacts:
    names = ("gb_id", "gb_type", "reason", "source_line")
    own = {name: row[name] for name in names}
    return BreakFacts(**own, explanation=row["explanation"] or "")


def title_break(facts: BreakFacts) -> str:
    return strip_ticks(label_break(facts))


class TitledBreak(PublicBreak):
    gb_type: GbType
    reason: BreakReason
    explanation: Explanation
    source_line: SourceLine
    file: FileName

    @property
    @published
    def is_in_harness(self) -> bool:
        """Return whether the break is in the step that `bench` measures, not in the user's code."""
        return is_harness_step(self.file)

    @property
    def title(self) -> str:
        return title_break(make_facts(vars(self)))


class CategorizedReason:
    category: Category

    @property
    @published
    def label(self) -> CategoryLabel:
        return label_category(self.category).label


class CategoryMeaning(CategorizedReason):
    @property
    @published
    def meaning(self) -> Annotated[str, "Meaning of the category."]:
        return label_category(self.category).meaning


class CauseFields(CategoryMeaning):
    source: GuardSource
    reason: str

    @property
    def title(self) -> str:
        return title_cause(self.category, self.source, self.reason)


def title_cause(category: str, source: str | None, reason: str) -> str:
    names = [name_source(source) for source in _BETWEEN.split(source or "")]
    if len(names) > 1 and category not in ("tensor_size", "symbolic_shape"):
        return f"{', '.join(names[:-1])} and {names[-1]} change together"
    dims = {*_DIM.findall(reason)}
    dim = int(dims.pop()) if len(dims) == 1 else None
    return title_recompile(category, source, dim=dim)


def gb_url(gb_id: str | None) -> str | None:
    if not gb_id or not gb_id[2:].isdigit():
        return None
    return f"https://meta-pytorch.github.io/compile-graph-break-site/gb/{gb_id.lower()}.html"


def name_ids(row: Row | Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {**dict(row), **{name: format_id(row[name]) for name in names}}
