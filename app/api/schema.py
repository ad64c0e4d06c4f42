"""A few words to write JSON schemas with: the subset of JSON Schema 2020-12 that OpenAPI 3.1 and the tests read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from compileboard.app.queries.run.compiles import OUTCOMES
from compileboard.app.queries.run.compiles import PHASES as PHASE_NAMES

Schema = dict[str, Any]


def text(said: str, **more: Any) -> Schema:
    """Describe a text."""
    return {"type": "string", "description": said, **more}


def whole(said: str, **more: Any) -> Schema:
    """Describe a whole number."""
    return {"type": "integer", "description": said, **more}


def decimal(said: str) -> Schema:
    """Describe a number."""
    return {"type": "number", "description": said}


def flag(said: str) -> Schema:
    """Describe a truth value."""
    return {"type": "boolean", "description": said}


def anything(said: str) -> Schema:
    """Describe a value whose shape is the recorder's."""
    return {"description": said}


def word(said: str, words: Iterable[str]) -> Schema:
    """Describe one of some words."""
    return text(said, enum=list(words))


def maybe(schema: Schema) -> Schema:
    """Allow null: not recorded."""
    if "type" not in schema:
        return {"oneOf": [schema, {"type": "null"}]}
    found = schema | {"type": [schema["type"], "null"]}
    return found | {"enum": [*schema["enum"], None]} if "enum" in schema else found


def array_of(of: Schema, said: str) -> Schema:
    """Describe a list."""
    return {"type": "array", "items": of, "description": said}


def mapping(of: Schema, said: str) -> Schema:
    """Describe an object with any names, whose values are alike."""
    return {"type": "object", "additionalProperties": of, "description": said}


def record(said: str, **properties: Schema) -> Schema:
    """Describe an object that always has exactly these names."""
    return {
        "type": "object",
        "description": said,
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def extend(base: Schema, said: str, **properties: Schema) -> Schema:
    """Describe an object that has what another has, and these."""
    return record(said, **(base["properties"] | properties))


def ref(name: str) -> Schema:
    """Point to a schema of the document."""
    return {"$ref": f"#/components/schemas/{name}"}


def count(said: str) -> Schema:
    """Describe a count."""
    return whole(said, minimum=0)


def time_us(said: str) -> Schema:
    """Describe a moment."""
    return whole(f"{said} Microseconds since 1970, UTC.")


def duration_us(said: str) -> Schema:
    """Describe a duration."""
    return whole(f"{said} Microseconds.")


ID = whole("Number of the row in this database.")
RANK = maybe(whole("Rank of the process in a distributed job."))
PROCESS_ID = text("The process's id.")
COMPILE_KEY = maybe(whole("`id` of the compile, as in `/runs/<run_id>/compiles/<key>`."))
COMPILE_ID = maybe(text("Compile id as torch prints it: `0/1`."))
FUNCTION = maybe(text("Qualified name of the function."))
FILE = maybe(text("Its file: path in the repository, or module path."))
LINE = maybe(whole("Line."))
SOURCE_LINE = maybe(text("That line of the user's code; null with `--no-source`."))
OUTCOME = word("What became of the compile.", OUTCOMES)
COMPILE_US = maybe(duration_us("Time of the compile, forward and backward."))
PAGE_URL = maybe(text("Public page about this kind of graph break."))
RECOMPILED_FROM = maybe(text("Compile id of the newest cache entry, that failed."))
EVENT = {"id": ID, "process_id": PROCESS_ID, "rank": RANK, "compile_key": COMPILE_KEY, "compile_id": COMPILE_ID}
PLACE = {"function": FUNCTION, "file": FILE, "line": LINE}
STACK = array_of({"type": "object", "additionalProperties": True}, "Frames {file, line, name, code}, outermost first.")
BREAK = {
    "gb_id": maybe(text("torch's id of this kind of graph break: `GB0059`.")),
    "gb_type": maybe(text("torch's name of this kind of graph break.")),
    "reason": text("Why the graph broke, in torch's words."),
    "explanation": maybe(text("What that means, in torch's words.")),
    "hints": array_of({"type": "string"}, "What to do, in torch's words."),
}
CATEGORY = {
    "category": text("Kind of guard that failed, `unknown` where it could not be told."),
    "label": text("The category in words."),
}
PHASES = record(
    "Time of each phase, exclusive: microseconds, null where torch recorded none.",
    **{name: maybe(duration_us(f"Phase {name}.")) for name in PHASE_NAMES},
)
RECORD_PHASES = record(
    "Time of each phase, exclusive: microseconds, null where torch recorded none.",
    **{name: maybe(duration_us(f"Phase {name}.")) for name in PHASE_NAMES if name != "first_calls"},
)
TREND = array_of({"type": "number"}, "Mean count a run, one number for each of `slots`.")
HISTORY = array_of(
    record(
        "One run of the same suite and name.",
        run_id=text("The run's id."),
        name=text("The run's name."),
        title=maybe(text("What a person called it.")),
        started_us=time_us("Start."),
        count=count("How often it came; 0 where it did not."),
    ),
    "How often it came in each of the newest 200 runs, oldest first.",
)
AFFECTED_RUN: Schema = record(
    "One run, and how often something came in it.",
    id=text("The run's id."),
    name=text("Its name."),
    title=maybe(text("What a person called it.")),
    suite=maybe(text("Its suite.")),
    state=text("Its state."),
    started_us=time_us("Start."),
    torch_version=maybe(text("Version of torch.")),
    host=maybe(text("Machine.")),
    git_commit=maybe(text("Commit.")),
    count=count("How often it came in this run."),
    compile_us=maybe(duration_us("Time of the compiles that had it.")),
    pinned=flag("Whether a person pinned the run."),
)
RUN_ENDS = {
    "run_id": text("The run's id."),
    "process_id": PROCESS_ID,
    "sequence": whole("Number of the event in its process."),
    "compile_key": COMPILE_KEY,
    "compile_id": COMPILE_ID,
    "line": LINE,
    "time_us": time_us("When."),
    "compile_outcome": maybe(text("What became of the compile.")),
    "compile_us": COMPILE_US,
}
JSON = anything("As it was recorded.")
