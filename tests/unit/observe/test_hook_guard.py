"""Our own errors go no further than a count; the program's pass."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from compileboard.collectors.observe.hook_guard import HookGuard
from compileboard.collectors.observe.tap import make_tap, skip_unused_events


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even its text")


@pytest.mark.parametrize(
    "error", [ValueError("x"), MemoryError(), RecursionError(), Unprintable(), KeyError(1)]
)
def test_an_error_of_ours_is_a_counted_loss(error: Exception) -> None:
    losses: Counter[str] = Counter()
    with HookGuard(losses):
        raise error
    assert sum(losses.values()) == 1
    assert next(iter(losses)).startswith(f"hook: {type(error).__name__}")


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_what_is_the_programs_passes(error: type[BaseException]) -> None:
    with pytest.raises(error), HookGuard(Counter()):
        raise error


class TooSlow(Exception):
    """What a program raises to end what takes too long."""

    @classmethod
    def of_method(cls, number: int, frame: object) -> None:
        raise cls

    @classmethod
    def of_any(cls, *arguments: object) -> None:
        cls.of_method(0, None)


@pytest.mark.parametrize("handler", [TooSlow.of_method, TooSlow.of_any, lambda n, f: 1 / 0])
def test_what_a_handler_of_a_signal_raises_in_a_slow_hook_ends_the_program(
    handler: Callable[[int, Any], Any],
) -> None:
    losses: Counter[str] = Counter()

    def emit(*_: Any) -> None:
        until = time.monotonic() + 10
        while time.monotonic() < until:
            pass

    trace = make_tap(lambda *_, **__: None, emit, HookGuard(losses))
    before = signal.signal(signal.SIGALRM, handler)
    try:
        with pytest.raises((TooSlow, ZeroDivisionError)):
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            trace("dynamo_start", lambda: {"stack": []})
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert losses == {}


def test_an_error_below_a_call_with_a_frame_is_still_ours() -> None:
    losses: Counter[str] = Counter()

    def read(frame: object) -> None:
        raise ValueError("x")

    with HookGuard(losses):
        read(sys._getframe())
    assert losses == {"hook: ValueError: x": 1}


def tapped(emitted: list[Any], losses: Counter[str]) -> tuple[Any, list[Any]]:
    passed: list[Any] = []

    def original(
        name: str, metadata_fn: Any = dict, *, payload_fn: Any = lambda: None, **rest: Any
    ) -> None:
        passed.append((name, metadata_fn(), payload_fn(), rest))

    return make_tap(
        original, lambda *arguments: emitted.append(arguments), HookGuard(losses)
    ), passed


def test_the_tap_evaluates_once_and_hands_everything_on() -> None:
    calls: list[str] = []
    emitted: list[Any] = []
    trace, passed = tapped(emitted, Counter())

    def metadata() -> dict[str, str]:
        calls.append("metadata")
        return {"name": "recompile_reasons", "encoding": "json"}

    def payload() -> list[str]:
        calls.append("payload")
        return ["0/0: x"]

    trace("artifact", metadata, payload_fn=payload, expect_trace_id=False)
    assert calls == ["metadata", "payload"]
    assert emitted[0][:3] == ("artifact:recompile_reasons", None, ["0/0: x"])
    assert passed == [
        (
            "artifact",
            {"name": "recompile_reasons", "encoding": "json"},
            ["0/0: x"],
            {"expect_trace_id": False},
        )
    ]


def test_the_tap_builds_nothing_that_nobody_wants() -> None:
    emitted: list[Any] = []
    built: list[str] = []
    trace = make_tap(
        lambda *_, **__: None, lambda *arguments: emitted.append(arguments), HookGuard(Counter())
    )
    trace(
        "dynamo_output_graph",
        lambda: built.append("graph"),
        payload_fn=lambda: built.append("text"),
    )
    trace(
        "artifact", lambda: {"name": "fx_graph_runnable"}, payload_fn=lambda: built.append("code")
    )
    assert (emitted, built) == ([], [])


def test_a_cache_events_components_are_never_written_as_json() -> None:
    emitted: list[Any] = []
    cache_info = {"key": "k", "components": [object()]}  # JSON could not even write it
    trace = make_tap(
        lambda *_, **__: None, lambda *arguments: emitted.append(arguments), HookGuard(Counter())
    )
    for name in ("fx_graph_cache_hit", "aotautograd_cache_miss"):
        trace(
            "artifact", lambda name=name: {"name": name}, payload_fn=lambda: json.dumps(cache_info)
        )
    assert [payload for _, _, payload, _ in emitted] == [{"key": "k", "component_count": 1}] * 2
    assert "components" in cache_info  # torch goes on with its own


def test_a_metadata_function_that_raises_does_so_for_torch_alone() -> None:
    losses: Counter[str] = Counter()
    emitted: list[Any] = []

    def bad() -> Any:
        raise ValueError("torch's own")

    quiet = make_tap(
        lambda *_, **__: "went on", lambda *arguments: emitted.append(arguments), HookGuard(losses)
    )
    assert quiet("artifact", bad, payload_fn=bad) == "went on"
    assert (emitted, sum(losses.values())) == ([], 1)
    loud, _ = tapped(emitted, losses)
    with pytest.raises(ValueError, match="torch's own"):  # as without us, where torch evaluates it
        loud("artifact", bad)


def test_an_emitter_that_fails_changes_nothing_for_torch() -> None:
    losses: Counter[str] = Counter()

    def failing(*_: Any) -> None:
        raise OSError("no")

    trace = make_tap(lambda *_, **__: "went on", failing, HookGuard(losses))
    assert trace("dynamo_start", lambda: {"stack": []}) == "went on"
    assert losses == {"hook: OSError: no": 1}


def test_a_cache_events_components_become_their_number() -> None:
    assert skip_unused_events("fx_graph_cache_hit", {"key": "k", "components": ["a", "b"]}) == {
        "key": "k",
        "component_count": 2,
    }
    assert skip_unused_events("aotautograd_cache_miss", '{"components": []}') == {
        "component_count": 0
    }
    assert skip_unused_events("recompile_reasons", ["components"]) == ["components"]
