"""Read a run filter from an address, the same for the page and the API."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta, timezone

from compileboard.app.queries.page import FilterError
from compileboard.app.queries.runs import STATES, RunFilter

FILTERS = ("q", "name", "suite", "tag", "host", "gpu", "torch", "commit", "state", "since", "until")
_OTHERS = ("sort", "cursor", "limit", "done")
_LONGEST = 200
_DAY = timedelta(days=1)


def read_run_filter(query: Mapping[str, str]) -> RunFilter:
    """Turn an address's query into a filter; what is empty is no limit.

    Raises: FilterError if a key is unknown or a value cannot be used.
    """
    for key in query:
        if key not in FILTERS and key not in _OTHERS:
            raise FilterError(f"{key[:40]}: there is no such filter; known are {', '.join(FILTERS)}")
    given = {key: query.get(key, "").strip() or None for key in FILTERS}
    for key, value in given.items():
        if value and len(value) > _LONGEST:
            raise FilterError(f"{key}: at most {_LONGEST} characters, this has {len(value)}")
    state, commit = given["state"], given["commit"]
    if state and state not in STATES:
        raise FilterError(f"state: {state!r} is not one of {', '.join(STATES)}")
    if commit and not all(letter in "0123456789abcdefABCDEF" for letter in commit):
        raise FilterError(f"commit: {commit!r} is not the beginning of a commit's hash")
    tag_key, _equals, tag_value = (given["tag"] or "").partition("=")
    since_us, _ = read_date("since", given["since"])
    _, before_us = read_date("until", given["until"])
    if since_us and before_us and since_us >= before_us:
        raise FilterError(f"since: {given['since']} is after until: {given['until']}, so nothing can match")
    return RunFilter(
        text=given["q"],
        name=given["name"],
        suite=given["suite"],
        tag_key=tag_key or None,
        tag_value=tag_value or None,
        host=given["host"],
        gpu=given["gpu"],
        torch=given["torch"],
        commit=commit,
        state=state,
        since_us=since_us,
        before_us=before_us,
    )


def read_date(key: str, text: str | None) -> tuple[int | None, int | None]:
    """Return where a day (or a moment) begins and where the next one does, in microseconds since the epoch."""
    if text is None:
        return None, None
    try:
        moment = datetime.fromisoformat(text)
        start = (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).astimezone(timezone.utc)
        step = _DAY if len(text) <= len("2026-11-21") else timedelta(microseconds=1)
        return _microseconds(start), _microseconds(start + step)
    except (ValueError, OverflowError):
        raise FilterError(f"{key}: {text!r} is not a date; write it as 2026-11-21 (days are UTC)") from None


def _microseconds(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(microseconds=1)
