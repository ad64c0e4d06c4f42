"""Read from an address which findings are wanted, the same for the page and the API."""

from __future__ import annotations

from collections.abc import Mapping

from compileboard.app.queries.findings import (
    DIRECTIONS,
    HANDLINGS,
    KINDS,
    NOT_IGNORED,
    NOT_WITHDRAWN,
    STATES,
    SUBJECTS,
    FindingFilter,
)
from compileboard.app.queries.page import FilterError
from compileboard.app.queries.run_filter import read_date
from compileboard.app.queries.trend_filter import check_keys, read_choice, read_text

FILTERS = (
    "state",
    "handling",
    "direction",
    "kind",
    "subject",
    "suite",
    "model",
    "metric",
    "branch",
    "hardware",
    "run",
    "recovered",
    "since",
    "until",
)
ANY = "any"
# Without a word: what is not withdrawn, and what nobody ignores.
STATE_CHOICES = (NOT_WITHDRAWN, *STATES, ANY)
HANDLING_CHOICES = (NOT_IGNORED, *HANDLINGS, ANY)
_CHOICES = {"direction": DIRECTIONS, "kind": KINDS, "subject": SUBJECTS, "recovered": ("yes", "no")}
_TEXTS = ("suite", "model", "metric", "branch", "hardware", "run")


def read_finding_filter(query: Mapping[str, str]) -> FindingFilter:
    """Turn an address's query into a filter; what is empty is no limit, but of state and handling.

    Raises: FilterError if a key is unknown or a value cannot be used.
    """
    check_keys((key for key in query if key not in ("cursor", "limit")), FILTERS)
    given = {key: read_text(query, key) for key in _TEXTS}
    asked = {key: words for key, words in _CHOICES.items() if query.get(key, "").strip()}
    chosen: dict[str, str] = {key: read_choice(query, key, words, "") for key, words in asked.items()}
    recovered = chosen.pop("recovered", None)
    state = read_choice(query, "state", STATE_CHOICES, NOT_WITHDRAWN)
    handling = read_choice(query, "handling", HANDLING_CHOICES, NOT_IGNORED)
    since_us, _ = read_date("since", read_text(query, "since"))
    _, before_us = read_date("until", read_text(query, "until"))
    if since_us and before_us and since_us >= before_us:
        raise FilterError(f"since: {query['since']} is after until: {query['until']}, so nothing can match")
    return FindingFilter(
        state=None if state == ANY else state,
        handling=None if handling == ANY else handling,
        recovered=None if recovered is None else recovered == "yes",
        since_us=since_us,
        before_us=before_us,
        **given,
        **chosen,
    )
