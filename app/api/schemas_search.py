"""Schemas of what a search finds."""

from __future__ import annotations

from compileboard.app.api.schema import Schema, count, flag, maybe, record, ref, rows, text, whole, word
from compileboard.app.api.schemas_parts import COMPILE_ID, COMPILE_KEY, FUNCTION
from compileboard.collectors.store.search_texts import KINDS

KIND = word("What kind of text it is.", KINDS)
SCHEMAS: dict[str, Schema] = {
    "SearchHit": record(
        "One text that has every word.",
        run_id=text("The run's id."),
        run_name=text("The run's title, or its name."),
        kind=KIND,
        ref_id=whole("`id` of what it is the text of: the artifact, distinct graph break, recompile, failure."),
        compile_key=COMPILE_KEY,
        compile_id=COMPILE_ID,
        function=FUNCTION,
        title=text("What it is called."),
        lines=rows(
            record(
                "A line that has some of the words, cut where it is long.",
                line=maybe(
                    whole("Its number in the artifact's text, from 1; null where the text is not one of lines.")
                ),
                text=text("The line."),
                found=rows({"type": "string"}, "What of it was sought."),
            ),
            "The three best lines; none where only its title has the words.",
        ),
    ),
    "SearchGroup": record(
        "What was found of one kind.",
        kind=KIND,
        count=count("Texts that were found; at most 500 are counted."),
        is_more=flag("Whether there are more than that."),
        next=maybe(text("`cursor` of the next page of the kind that was asked for.")),
        hits=rows(ref("SearchHit"), "Those put into the index last come first; none of a kind that was not asked for."),
    ),
    "Search": record(
        "What a search found.",
        groups=rows(ref("SearchGroup"), "Kinds of which something was found."),
        run_count=count("Runs that were looked in."),
        pending_run_count=count("Those of them that have something not indexed yet."),
    ),
}
