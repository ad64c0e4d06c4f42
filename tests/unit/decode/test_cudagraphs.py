"""What a hook writes of a CUDA graph's recording becomes the event's fields."""

from __future__ import annotations

from typing import Any

from compileboard.collectors.decode.cudagraphs import MAX_INPUTS, parse_recording
from compileboard.collectors.decode.records import PathNamer

LINE = "input name: arg{0}_1. data pointer changed from 1 to 2. input stack trace: "
STACK = '  File "/app/model.py", line 7, in forward\n    return x + self.cache\n'


def parse(text: str, described: dict[str, Any], count: int) -> dict[str, Any]:
    metadata = {
        "stage": "recording",
        "unknown": 1,
        "reasons": [[4, "StaticInputIdxMismatch", text, described, count]],
    }
    fields = parse_recording(metadata, PathNamer(["/app"]))
    assert fields is not None
    return fields


def test_an_input_has_its_type_and_the_line_that_uses_it() -> None:
    text = "moved.\n" + LINE.format(0) + "None\n" + LINE.format(1) + STACK
    fields = parse(text, {"arg1_1": ["torch.float16", [2, 3]]}, 2)
    assert fields["status"] == "StaticInputIdxMismatch" and "unknown" not in fields
    parameter, used = fields["reasons"][0]["inputs"]
    assert (parameter["dtype"], parameter["stack"]) == (None, [])
    assert (used["dtype"], used["shape"]) == ("torch.float16", [2, 3])
    assert [(frame["file"], frame["code"]) for frame in used["stack"]] == [
        ("model.py", "return x + self.cache")
    ]


def test_more_inputs_than_are_kept_are_counted() -> None:
    text = "moved.\n" + "".join(LINE.format(number) + "None\n" for number in range(30))
    (reason,) = parse(text, {}, 300)["reasons"]
    assert (len(reason["inputs"]), reason["input_count"]) == (MAX_INPUTS, 300)


def test_a_record_without_reasons_is_not_the_hooks() -> None:
    assert parse_recording({"stage": "recording"}, PathNamer()) is None
