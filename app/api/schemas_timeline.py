"""What the API says of a run's timeline."""

from __future__ import annotations

from compileboard.app.api.schema import (
    Schema,
    anything,
    count,
    flag,
    mapping,
    maybe,
    record,
    rows,
    text,
    time_us,
    whole,
)

_NUMBERS = {"type": "integer"}
_EVENT: Schema = {
    "type": "object",
    "description": "One event of Chrome's trace format. `ph` X is a phase, i a moment, B a phase whose end was not "
    "recorded, M a name of a process or thread.",
    "properties": {
        "name": text("torch's name of the phase."),
        "ph": text("The kind of event.", enum=["X", "i", "B", "M"]),
        "ts": whole("When it began. Microseconds since 1970, UTC."),
        "dur": whole("How long it took. Microseconds.", minimum=0),
        "pid": whole("The process: its rank, else its pid."),
        "tid": whole("torch's number of the thread."),
        "s": text("The scope of a moment.", enum=["t"]),
        "cat": text("The phase of a compile."),
        "args": anything("`compile_id` and what torch said of the phase."),
    },
    "required": ["name", "ph", "ts", "pid", "tid", "args"],
    "additionalProperties": False,
}
_LANE = record(
    "A thread of a process. Its lists are flat: so many numbers an entry.",
    label=text("Its rank, pid and thread."),
    rows=count("How many phases ran inside one another at most."),
    last=whole("When it ended, since `first_us`. Microseconds."),
    spans=rows(
        _NUMBERS,
        "Phases, five numbers each: place in `names`, begin since `first_us`, duration (−1: its end was not recorded), "
        "depth, key of its compile (0: none). Parents stand before their children.",
    ),
    short=rows(
        _NUMBERS,
        "What is too short to be seen, four numbers each: depth, bucket (a 240th of the window), how many began in it, "
        "their time together.",
    ),
    marks=rows(
        _NUMBERS, "Moments, three numbers each: place in `names`, time since `first_us`, how many in its bucket."
    ),
)
SCHEMAS: dict[str, Schema] = {
    "Trace": record(
        "A trace file.",
        displayTimeUnit=text("How viewers show times."),
        otherData=record(
            "Which run it is.",
            run=text("Its id."),
            name=text("Its name."),
            torch=maybe(text("Its version of torch.")),
            writer=text("Who wrote the file."),
        ),
        traceEvents=rows(_EVENT, "Every phase, parents before their children."),
    ),
    "TimelineWindow": record(
        "A window of a timeline; without lanes and moments where no phase was recorded.",
        first_us=maybe(time_us("When the run's first phase began.")),
        last_us=maybe(time_us("When its last phase ended.")),
        from_us=maybe(time_us("Where the window begins.")),
        to_us=maybe(time_us("Where it ends.")),
        names=rows(
            rows({"type": ["string", "integer"]}, "Name, and place of its phase in the legend."),
            "What phases are called.",
        ),
        compiles=mapping(rows(maybe(text("A text.")), "Its compile id and its function."), "Compiles by their key."),
        lanes=rows(_LANE, "By rank, process and thread."),
        is_coarse=flag("Whether the shortest phases are in no sum: more began in the window than are looked at."),
        busy=rows(_NUMBERS, "With `idle`: when any lane was busy, two numbers each, begin and end since `first_us`."),
    ),
}
