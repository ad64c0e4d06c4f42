"""Schemas of a run's caches: what they answered, one look-up with its key."""

from __future__ import annotations

from compileboard.app.api.schema import Schema, count, extend, maybe, record, rows, text, time_us, whole
from compileboard.app.api.schemas_events import CACHE_LOOKUP
from compileboard.app.api.schemas_parts import COMPILE_ID, COMPILE_KEY, FILE, FUNCTION, ID, LINE, RANK
from compileboard.app.api.schemas_run import CACHE_RESULT

_DIFFERS = maybe(text("What differs from the nearest earlier key, in a line; null where it was not compared."))
_VALUE = maybe(text("Its text; null where it is not there, or bytes."))
_CHANGE = record(
    "One component of the key that differs.",
    name=text("torch's name of it."),
    summary=text("How it differs."),
    explanation=text("What it is and what changes it; empty where nobody knows."),
    before=_VALUE,
    after=_VALUE,
    fields=rows(
        record(
            "One field of it that differs.",
            name=text("Its name."),
            before=maybe(text("Value before.")),
            after=maybe(text("Value after.")),
        ),
        "Fields that differ, where torch writes it with fields.",
    ),
)
_CHANGES = maybe(rows(_CHANGE, "What matters most first; null where nothing was compared."))
SCHEMAS: dict[str, Schema] = {
    "Caches": record(
        "What a run's caches answered.",
        results=rows(CACHE_RESULT, "By cache, result and reason: at most 200."),
        lookups=rows(
            extend(CACHE_LOOKUP, "One look-up in a cache.", differs=_DIFFERS),
            "One page of look-ups as they came; with `differs=yes` at most 20.",
        ),
        next=maybe(text("`cursor` of the next page of look-ups, null on the last.")),
    ),
    "CacheLookupDetail": extend(
        CACHE_LOOKUP,
        "One look-up in a cache with its key.",
        file=FILE,
        line=LINE,
        artifact_id=maybe(whole("`id` of the artifact that is torch's record of it.")),
        differs=_DIFFERS,
        traceback=maybe(text("Of a bypass: where torch decided it.")),
        key_remark=maybe(text("Why no components are here; null where they are.")),
        components=rows(
            record(
                "One component of the key.",
                name=text("torch's name of it."),
                digest=text("torch's hash of it."),
                value=text("torch's text of it."),
            ),
            "What the key is made of, in torch's order.",
        ),
        looked_at_count=count("Earlier look-ups that a miss was compared with."),
        nearest=maybe(
            record(
                "The earlier look-up whose key differs least.",
                id=ID,
                run_id=text("Its run's id."),
                rank=RANK,
                compile_key=COMPILE_KEY,
                compile_id=COMPILE_ID,
                function=FUNCTION,
                result=text("hit or miss."),
                key=maybe(text("Its key.")),
                time_us=time_us("When."),
            )
        ),
        changed=_CHANGES,
        only_in_miss=_CHANGES,
        only_in_earlier=_CHANGES,
        same_count=maybe(count("Components that are the same.")),
    ),
}
