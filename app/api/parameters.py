"""Every parameter that an address of the API takes, described once."""

from __future__ import annotations

from typing import Any

from compileboard.app.analysis.models.table import ORDERS as MODEL_ORDERS
from compileboard.app.analysis.trends.lines import AXES
from compileboard.app.analysis.trends.lines import CHOICES as METRICS
from compileboard.app.api.answers import DEFAULT_LIMIT, MOST
from compileboard.app.queries.fleet import graph_breaks, incidents, models, recompiles, runs
from compileboard.app.queries.fleet.incidents import HANDLING_CHOICES, STATE_CHOICES
from compileboard.app.queries.fleet.scope import RUN_FILTERS
from compileboard.app.queries.fleet.sides import FORMS
from compileboard.app.queries.run import compiles, guards
from compileboard.collectors.contract.categories import CATEGORIES
from compileboard.collectors.store.rollups.summaries import DEFINITIONS
from compileboard.collectors.store.search_documents import KINDS

Schema = dict[str, Any]
TEXT: Schema = {"type": "string", "maxLength": 200}
_CHOICE: Schema = {"type": "string", "enum": ["yes", "no"]}
MOMENT: Schema = {"type": "integer", "minimum": 0, "description": "Microseconds since 1970, UTC."}
PAGE = ("limit", "cursor")
RUNS = ("q", *RUN_FILTERS, "sort_runs", *PAGE)
BREAKS = (*graph_breaks.FILTERS, *RUN_FILTERS)
CAUSES = (*recompiles.FILTERS, *RUN_FILTERS)
MODELS = (
    "q",
    "suite_model",
    "mode",
    "dtype",
    "device",
    "backend",
    "status",
    "accuracy",
    "run_results",
    "sort_models",
    *PAGE,
)

FINDINGS = (
    "state_finding",
    "handling_finding",
    "direction",
    "kind_finding",
    "subject",
    "suite_model",
    "model_check",
    "metric_finding",
    "branch",
    "hardware",
    "run_finding",
    "recovered",
    "since",
    "until",
)
SETS = ("suite_model", "mode", "dtype", "device", "hardware", "backend", "dynamic", "world_size", "branch")


def _orders(orders: Any) -> Schema:
    return {"type": "string", "enum": [f"{name}{end}" for name in orders for end in ("", ".asc", ".desc")]}


# Key here, description, schema. A key's part behind "_" tells apart what one name means at several addresses.
_TABLE: tuple[tuple[str, str, Schema], ...] = (
    ("limit", "Rows of one page.", {"type": "integer", "minimum": 1, "maximum": MOST, "default": DEFAULT_LIMIT}),
    (
        "cursor",
        "Where the page begins: `next` of the page before. Keep the other parameters as they were.",
        {"type": "string"},
    ),
    ("q", "Text to look for; capitals do not matter.", TEXT),
    ("name", "A run's name, whole.", TEXT),
    ("suite", "A run's suite, whole.", TEXT),
    ("tag", "A run's tag: `key` or `key=value`.", TEXT),
    ("host", "The name of a run's machine.", TEXT),
    ("gpu", "The name of a run's GPU, or `CPU` for runs without one.", TEXT),
    ("torch", "A run's version of torch, whole.", TEXT),
    ("commit", "The beginning of the hash of a run's commit.", TEXT | {"pattern": "^[0-9a-fA-F]*$"}),
    ("state", "A run's state.", {"type": "string", "enum": list(runs.STATES)}),
    ("since", "The first day (UTC) or moment that runs started at: `2026-11-21`.", TEXT),
    ("until", "The last day (UTC) or moment that runs started at: `2026-11-21`.", TEXT),
    ("sort_runs", "The order, largest first; with `.asc` smallest first.", _orders(runs.ORDERS)),
    ("sort_compiles", "The order, largest first; with `.asc` smallest first.", _orders(compiles.ORDERS)),
    ("sort_breaks", "The order, largest first; with `.asc` smallest first.", _orders(graph_breaks.ORDERS)),
    ("sort_causes", "The order, largest first; with `.asc` smallest first.", _orders(recompiles.ORDERS)),
    ("sort_guards", "The order, largest first; with `.asc` smallest first.", _orders(guards.ORDERS)),
    ("sort_models", "The order, largest first; with `.asc` smallest first.", _orders(MODEL_ORDERS)),
    ("suite_model", "A suite of models, whole: `builtin`.", TEXT),
    ("mode", "`inference` or `training`.", TEXT),
    ("dtype", "`float32`, `float16`, `bfloat16` or `amp`.", TEXT),
    ("device", "`cpu` or `cuda`.", TEXT),
    ("backend", "A backend with its config label, whole: `inductor`.", TEXT),
    ("status", "What became of the model.", {"type": "string", "enum": list(models.STATUSES)}),
    ("accuracy", "What its accuracy check came to.", {"type": "string", "enum": list(models.ACCURACIES)}),
    ("run_results", "A run's id: its results instead of the newest of each model.", TEXT),
    ("outcome", "What became of the compile.", {"type": "string", "enum": list(compiles.OUTCOMES)}),
    ("recompiled", "Only compiles that are recompiles, or only the others.", {"type": "string", "enum": ["yes", "no"]}),
    ("distinct", "Only the events of this distinct graph break.", {"type": "string", "pattern": "^[0-9]*$"}),
    ("gb", "torch's id of a kind of graph break: `GB0059`.", TEXT),
    ("kind", "torch's name of a kind of graph break, whole.", TEXT),
    ("q_search", "Words that a text must all have; quotes keep words together, `-word` leaves texts out.", TEXT),
    ("run", "Only in this run: its id.", TEXT),
    ("kind_search", "Only this kind of texts, page by page.", {"type": "string", "enum": list(KINDS)}),
    ("function", "Part of `file:function`; capitals do not matter.", TEXT),
    ("artifact_name", "torch's name of an artifact, whole.", TEXT),
    ("compile", "Only the artifacts of this compile: its `id`.", {"type": "string", "pattern": "^[0-9]*$"}),
    ("a", "An artifact's `id`; its text is on the left.", {"type": "string", "pattern": "^[0-9]+$"}),
    ("b", "Another artifact's `id`; its text is on the right.", {"type": "string", "pattern": "^[0-9]+$"}),
    ("ignore", "Leave out memory addresses, object ids and made-up paths.", {"type": "string", "enum": ["addresses"]}),
    ("context", "Equal lines around a changed one.", {"type": "integer", "minimum": 1, "maximum": 1000, "default": 3}),
    ("differs", "`yes`: say what each miss differs in, of 20 look-ups.", {"type": "string", "enum": ["", "yes"]}),
    ("runs", "`before`: compare with earlier runs of the same name.", {"type": "string", "enum": ["", "before"]}),
    ("filename", "What the log is called, where the body is the file itself.", TEXT),
    ("name_import", "The run's name; the program's file where it is not given.", TEXT),
    ("suite_import", "What the run belongs to.", TEXT),
    ("tags", "Tags of the run: `key=value`, with commas between.", TEXT),
    ("payloads", "Whether graphs, code and guards are kept; `yes` where it is not given.", _CHOICE),
    ("redact_source", "Whether every line of the user's code is left out; `no` where it is not given.", _CHOICE),
    ("again", "Whether it is imported even if its run was deleted here; `no` where it is not given.", _CHOICE),
    ("rows", "`all`: also what does not differ.", {"type": "string", "enum": ["", "all"]}),
    ("download", "`1`: the bare trace file.", {"type": "string", "enum": ["", "1"]}),
    ("from_us", "Where the window begins; the run's first moment where it is not given.", MOMENT),
    ("to_us", "Where the window ends; the run's last moment where it is not given.", MOMENT),
    ("width", "How many columns the window is drawn with.", {"type": "integer", "minimum": 1, "maximum": 100_000}),
    ("idle", "`1`: also when the run was busy.", {"type": "string", "enum": ["", "1"]}),
    ("run_check", "A run's id or its beginning, or `latest`.", TEXT),
    ("baseline", "What to compare with: a run, a commit, a stored baseline, `latest` or `previous`.", TEXT),
    (
        "environment",
        "`any`: compare speeds across another GPU or torch too.",
        {"type": "string", "enum": ["", "any"]},
    ),
    ("hardware", "The GPU's model, or the processor's, whole.", TEXT),
    ("dynamic", "`yes`: with dynamic shapes; `no`: without.", {"type": "string", "pattern": "^(yes|no)?$"}),
    ("batch_size", "The batch size.", {"type": "string", "pattern": "^[0-9]*$"}),
    ("world_size", "Ranks that it ran on.", {"type": "string", "pattern": "^[0-9]*$"}),
    ("branch", "A branch, whole.", TEXT),
    ("run_summary", "A run's id.", TEXT),
    (
        "definition",
        "How a suite is summed up; where it is not given `hud`, or `summarize_perf` where nobody checked accuracy.",
        {"type": "string", "enum": [*DEFINITIONS]},
    ),
    ("metric", f"`speedup` where it is not given; {', '.join(METRICS)}.", TEXT),
    ("model", "A model's name, whole; the suite where it is not given.", TEXT),
    ("model_check", "A model's name, whole.", TEXT),
    ("function_trend", "A function's `id`: its recompiles.", {"type": "string", "pattern": "^[0-9]*$"}),
    ("break", "A distinct graph break's `id`: how often it came.", {"type": "string", "pattern": "^[0-9]*$"}),
    ("axis", "What points are ordered by.", {"type": "string", "enum": [name for name, _label in AXES]}),
    ("last", "How many of the newest runs, or `all`; 90 where it is not given.", TEXT),
    (
        "base",
        f"What was: {FORMS}. The run before new where it is not given.",
        TEXT,
    ),
    ("new", f"What is judged: {FORMS}. The newest benchmark where it is not given.", TEXT),
    ("anyway", "`1`: compare numbers across machines too.", {"type": "string", "enum": ["", "1"]}),
    ("rule", "A rule's name, or names with commas between; `default` where it is not given.", TEXT),
    ("category", "What kind of guard failed.", {"type": "string", "enum": [it.name for it in CATEGORIES]}),
    (
        "state_finding",
        "What detection thinks of it; `not_withdrawn` where it is not given.",
        {"type": "string", "enum": [*STATE_CHOICES]},
    ),
    (
        "handling_finding",
        "What people made of it; `not_ignored` where it is not given.",
        {"type": "string", "enum": [*HANDLING_CHOICES]},
    ),
    ("direction", "Which way it changed.", {"type": "string", "enum": [*incidents.DIRECTIONS]}),
    ("kind_finding", "How it changed.", {"type": "string", "enum": [*incidents.KINDS]}),
    ("subject", "What the series is of.", {"type": "string", "enum": [*incidents.SUBJECTS]}),
    ("metric_finding", "A metric's name, whole.", TEXT),
    ("run_finding", "The first run after the change: its id.", TEXT),
    ("subject_audit", "The id of what was changed: a run's, a finding's, a baseline's name.", TEXT),
    ("recovered", "Whether the level before came back.", _CHOICE),
)
_SAME_NAME = {
    "artifact_name": "name",
    "redact_source": "redact_source",
    "from_us": "from_us",
    "to_us": "to_us",
    "batch_size": "batch_size",
    "world_size": "world_size",
}
PARAMETERS = {key: (_SAME_NAME.get(key, key.partition("_")[0]), said, schema) for key, said, schema in _TABLE}

PATH_PARAMETERS = {
    "finding_id": "A finding's `id`.",
    "run_id": "A run's id, in full.",
    "key": "A compile's `id`.",
    "config_hash": "A configuration text's hash.",
    "distinct_id": "A distinct graph break's `id`.",
    "cause_id": "A cause's `id`.",
    "import_id": "An import's `id`.",
    "artifact_id": "An artifact's `id`.",
    "lookup_id": "The `id` of a look-up in a cache.",
    "baseline_name": "A stored baseline's name.",
    "guards_id": "The `artifact_id` of a set of guards.",
    "name": "A model's name, whole.",
}


def name_parameter(key: str) -> str:
    """Return the parameter's name in an address."""
    return PARAMETERS[key][0]
