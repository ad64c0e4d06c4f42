"""`repro analyze`, `repro bisect`: the operation, pass or setting that makes a graph fail."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from compileboard.collectors.cli.repro import (
    json_option,
    level_option,
    load_trusted,
    name_argument,
    origin_options,
    save,
    trial_options,
    work,
)
from compileboard.collectors.terminal.values import lay_out
from compileboard.command_line import Command
from compileboard.exit_codes import DONE, FAILED

if TYPE_CHECKING:
    from compileboard.collectors.repro.findings import JudgedNode, TriedSetting

MOST_ROWS = 12  # of the terminal's table
PACKAGE = "compileboard.collectors.repro.locate"
strict_option = click.option(
    "--strict", is_flag=True, help="Take other bits than eager's as wrong."
)


@click.command("analyze", cls=Command)
@name_argument
@origin_options
@level_option
@strict_option
@click.option("--all", "with_all", is_flag=True, help="Print every operation that was judged.")
@trial_options
@json_option
def analyze_command(
    name: str,
    level: str | None,
    strict: bool,
    with_all: bool,
    trust: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """Name the operation of a graph that is wrong, or fails.

    Each operation is judged on the compiled values of its inputs, against float64 and beside eager.
    Exit code 0: an operation is named, or several that are wrong only when fused. 1: none is. 2: it
    could not be run.
    """
    from compileboard.collectors.repro import findings
    from compileboard.collectors.repro.repro import advise_passing, now_us

    loaded, started_us = load_trusted(name, options, trust=trust), now_us()
    asked = {"level": level, "strict": strict, "memory_bytes": options["memory"]}
    answer = work(loaded, f"{PACKAGE}.analyze_task:analyze", asked, **options)
    analysis = findings.Analysis.load(answer)
    save(loaded, "analyze", started_us, {**answer, "sentence": analysis.sentence()})
    if as_json:
        print(json.dumps(answer, indent=2, ensure_ascii=False))
    else:
        rows = analysis.rows if with_all else _choose_rows(analysis.rows)
        counts = (
            f"{analysis.judged_count} operations judged, {analysis.random_count} random, "
            f"{analysis.not_judged_count} not judged, {analysis.compile_count} compiles"
        )
        print(
            "\n".join(
                [
                    f"{analysis.sentence()}.",
                    *(
                        advise_passing(loaded.manifest.preload)
                        if analysis.status == findings.NOT_REPRODUCED
                        else ()
                    ),
                    *lay_out_nodes(rows),
                    *_end_sentences(analysis.notes),
                    counts,
                ]
            )
        )
    return DONE if analysis.status in (findings.NAMED, findings.ONLY_FUSED) else FAILED


@click.command("bisect", cls=Command)
@name_argument
@origin_options
@level_option
@strict_option
@click.option(
    "--settings", is_flag=True, help="Try single settings of inductor even where a step is named."
)
@trial_options
@json_option
def bisect_command(
    name: str,
    level: str | None,
    strict: bool,
    settings: bool,
    trust: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """Find the pass, lowering, decomposition or setting without which a graph passes.

    torch's own bisector asks, then single settings of inductor are tried. Your inductor cache stays
    as it is. Exit code 0: a step or a setting is named. 1: none is. 2: it could not be run.
    """
    from compileboard.collectors.repro import findings
    from compileboard.collectors.repro.repro import advise_passing, now_us

    loaded, started_us = load_trusted(name, options, trust=trust), now_us()
    asked = {"level": level, "strict": strict, "settings": settings}
    answer = work(loaded, f"{PACKAGE}.bisect:bisect", asked, **options)
    bisection = findings.Bisection.load(answer)
    save(loaded, "bisect", started_us, {**answer, "sentence": bisection.sentence()})
    if as_json:
        print(json.dumps(answer, indent=2, ensure_ascii=False))
    else:
        lines = [
            f"{bisection.sentence()}.",
            *(
                advise_passing(loaded.manifest.preload)
                if bisection.status == findings.NOT_REPRODUCED
                else ()
            ),
            *lay_out_settings(bisection.settings),
            *_end_sentences(bisection.notes),
        ]
        print("\n".join([*lines, f"{bisection.trial_count} trials"]))
    return DONE if bisection.status == findings.NAMED else FAILED


def _choose_rows(rows: Sequence[JudgedNode]) -> list[JudgedNode]:
    from compileboard.collectors.repro.findings import WRONG_VERDICTS

    wrong = [row for row in rows if row.verdict in WRONG_VERDICTS]
    return wrong[:MOST_ROWS] if wrong else list(rows[:3])


def lay_out_nodes(rows: Sequence[JudgedNode]) -> list[str]:
    cells = [
        [
            row.node,
            row.operation,
            row.verdict.replace("_", " "),
            _number(row.error),
            _number(row.eager_error),
            _number(row.limit),
            {True: "yes", False: "no", None: "–"}[row.explains],
            row.source or row.reason or "",
        ]
        for row in rows
    ]
    return _lay_out(
        ["node", "operation", "verdict", "error", "eager", "limit", "explains", ""], cells
    )


def lay_out_settings(settings: Sequence[TriedSetting]) -> list[str]:
    words = {True: "passes", False: "fails", None: "fails otherwise"}
    cells = [[entry.setting, entry.value, words[entry.passes]] for entry in settings]
    return _lay_out(["setting", "value", "graph"], cells)


def _lay_out(head: list[str], cells: list[list[str]]) -> list[str]:
    from compileboard.collectors.terminal.run_summary import printable

    if not cells:
        return []
    table = [head, *([printable(cell) for cell in row] for row in cells)]
    return [f"  {line}" for line in lay_out(table)]


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2g}"


def _end_sentences(notes: Sequence[str]) -> list[str]:
    return [f"{note}." for note in notes]
