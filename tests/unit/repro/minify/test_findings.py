"""What minify answers is read back as it was written, and says itself in a sentence."""

import json

from compileboard.collectors.repro.findings import (
    Minification,
    Reduction,
)

ANSWER = Minification(
    "minified",
    25,
    1,
    ("aten.atan.default",),
    failure="differs",
    history=(Reduction(2.5, 13, 2), Reduction(9.0, 1, 6)),
)


def test_an_answer_comes_back_from_json() -> None:
    body = json.loads(json.dumps(ANSWER.dump()))
    assert Minification.load({**body, "of a later version": 1}) == ANSWER


def test_it_says_what_is_left() -> None:
    assert ANSWER.sentence() == "25 → 1 operations: aten.atan.default."
    fused = Minification(
        "minified", 9, 2, ("aten.sin.default", "aten.cos.default"), is_together=True, is_fusion=True
    )
    assert "only when fused" in fused.sentence()
    stopped = Minification("not_finished", 9, 4, ("a", "b", "c", "d"), why="interrupted")
    assert stopped.sentence().endswith(
        "Not finished: interrupted; the same command goes on from here."
    )
