"""Compare what a window of steps says that a graph break costs with the step after the break is
gone. Needs a GPU.

python -m benchmarks.steps.predictions [NAME ...] [--keep FILE]
"""

from __future__ import annotations

import argparse
import json
import logging
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks.common import Row, observing, print_table, require_gpu, scratch_folder
from benchmarks.steps import programs
from compileboard.collectors.fixes.step_costs import cost_window, find_usual_step

WARM_UP, STEPS, WINDOWS, ROUNDS = 8, 40, 3, 5


def time_steps(call: Callable[[], Any], count: int = STEPS) -> float:
    """Return the microseconds of a step."""
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(count):
        call()
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / count * 1e6


def run_window(call: Callable[[], Any]) -> None:
    from compileboard.collectors.observe import hooks

    window = hooks.current().open_window(STEPS, 0)
    while not window.is_ended:
        call()


def read_events(spool: Path) -> list[Any]:
    from compileboard.collectors.decode.decoder import Decoder
    from compileboard.collectors.record.spool import SpoolReader

    decoder = Decoder()
    return [
        event
        for folder in spool.glob("spool-*")
        for captured in SpoolReader(folder).read()
        for event in decoder.decode(captured)
    ]


def measure(make: Callable[[], programs.Pair]) -> dict[str, Any]:
    torch._dynamo.reset()
    inside, pairs = [], []
    with scratch_folder() as folder:
        with observing(folder):
            broken, whole = make()
            for call in (broken, whole):
                for _ in range(WARM_UP):
                    call()
            for _ in range(WINDOWS):
                before = time_steps(broken)
                run_window(broken)
                inside.append((before + time_steps(broken)) / 2)
                pairs += [(time_steps(broken), time_steps(whole)) for _ in range(ROUNDS)]
        events = read_events(folder)
    outcomes = {event.compile_id: "resumed" for event in events if event.KIND == "graph_broke"}
    for event in events:
        if event.KIND == "compiled" and event.outcome == "skipped":
            outcomes[event.compile_id] = "skipped"
    windows = [event for event in events if event.KIND == "steps_timed"]
    return {
        "broken_us": median(pair[0] for pair in pairs),
        "saved": median(1 - after / before for before, after in pairs),
        "inside_us": inside,
        "outcomes": outcomes,
        "windows": [vars(window) for window in windows],
    }


def predict(found: dict[str, Any]) -> dict[str, float]:
    """Return the share of a step that its breaks are said to cost, and how true the times are."""
    shares, sums, inside, periods = [], [], [], []
    for window, around_us in zip(found["windows"], found["inside_us"], strict=True):
        step = find_usual_step(window["graphs"], window["steps"])
        if step is None:
            continue
        gaps = cost_window(step, window["traced"], window["peak_bytes_per_s"])
        costs = gaps.estimate(found["outcomes"])
        shares.append(sum(cost.us for cost in costs) / step.whole_us)
        sums.append(sum(part.us for part in (*step.call, *step.after)) / step.whole_us)
        inside.append(step.whole_us / around_us)
        periods.append(step.whole_us)
    return {
        "share": median(shares),
        "sum": max(sums, key=lambda one: abs(one - 1)),
        "inside": median(inside),
        "twice": max(periods) / min(periods),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="of a program; default: all")
    parser.add_argument("--keep", metavar="FILE", help="file for all that was measured, as JSON")
    parser.add_argument("--read", metavar="FILE", help="such a file, to predict from again")
    options = parser.parse_args()
    if not options.read:
        require_gpu()
    logging.disable(logging.WARNING)
    torch.set_float32_matmul_precision("high")
    groups = {
        "resumed, looked at": programs.RESUMED,
        "resumed, not looked at": programs.RESUMED_UNSEEN,
        "skipped, looked at": programs.SKIPPED,
        "skipped, not looked at": programs.SKIPPED_UNSEEN,
    }
    kept = json.loads(Path(options.read).read_text()) if options.read else {}
    for title, group in groups.items():
        rows = []
        for name, make in group.items():
            if options.names and name not in options.names:
                continue
            if not options.read:
                kept[name] = measure(make)
            if name in kept:
                rows.append(_describe(name, kept[name]))
        if options.keep:
            Path(options.keep).write_text(json.dumps(kept))
        print_table(f"What a break is said to cost a step: {title}", rows)


def _describe(name: str, found: dict[str, Any]) -> Row:
    said = predict(found)
    is_known = said["share"] > 0
    step = f"step {found['broken_us']:.0f} µs"
    times = f"sum {said['sum']:.2f}, twice {said['twice']:.2f}, inside {said['inside']:.2f}"
    return Row(
        f"{name} ({step}; {times})",
        f"{said['share']:.1%}" if is_known else "not known",
        f"{found['saved']:.1%}",
        f"{said['share'] / found['saved']:.2f}" if is_known else "–",
        "0.75 to 1.25",
    )


if __name__ == "__main__":
    main()
