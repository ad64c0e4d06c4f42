"""Find the backend, pass, lowering, decomposition or setting that makes a repro fail, for `repro
bisect` in the driver.

This uses torch's bisector with one trial per question and its state in a folder of the task. Its
command line is not used, because it empties the user's cache. Then single inductor settings are
tried.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from compileboard.collectors.contract.repros import find_operation
from compileboard.collectors.repro import findings
from compileboard.collectors.repro import repro as failure
from compileboard.collectors.repro.findings import Bisection, TriedSetting
from compileboard.collectors.repro.graph_loading import load_graph
from compileboard.collectors.repro.isolation import ReproTask
from compileboard.collectors.repro.judging import NO_FUSION, Judge, judge
from compileboard.collectors.repro.locate.graph_trial import (
    RepeatedTry,
    list_judges,
    list_operations,
    read_value,
)
from compileboard.collectors.repro.repro import Repro

BISECTOR = "torch._inductor.compiler_bisector"
INDUCTOR = "inductor"
# Settings of `torch._inductor.config`, each tried separately.
SETTINGS: Mapping[str, Any] = {
    "max_fusion_size": 1,
    "epilogue_fusion": False,
    "pattern_matcher": False,
    "post_grad_custom_pre_pass": None,
    "post_grad_custom_post_pass": None,
    "joint_custom_pre_pass": None,
    "joint_custom_post_pass": None,
    "max_autotune": False,
    "coordinate_descent_tuning": False,
    "freezing": False,
    "cpp_wrapper": False,
    "split_reductions": False,
    "inplace_buffers": False,
    "allow_buffer_reuse": False,
    "reorder_for_peak_memory": False,
    "reorder_for_locality": False,
    "layout_optimization": False,
    "emulate_precision_casts": True,
    "use_fast_math": False,
    "triton.cudagraphs": False,
    "triton.persistent_reductions": False,
    "triton.multi_kernel": 0,
    "cpp.simdlen": 1,
    "cpp.threads": 1,
    "cpp.weight_prepack": False,
    "cpp.enable_loop_tail_vec": False,
    "cpp.enable_unsafe_math_opt_flag": False,
    "cpp.enable_floating_point_contract_flag": "off",
}
# Settings required together with one of them.
BESIDE: Mapping[str, Mapping[str, Any]] = {
    "max_autotune": {"max_autotune_gemm": False, "max_autotune_pointwise": False},
}


def bisect(task: ReproTask) -> dict[str, Any]:
    for how in list_judges(task):
        tries = RepeatedTry(task, how)
        bisection = _bisect_level(tries, with_settings=bool(task.options.get("settings")))
        if bisection.status == findings.NAMED:
            break
    return bisection.dump()


def _bisect_level(tries: RepeatedTry, *, with_settings: bool) -> Bisection:
    first = tries.attempt()
    operation = find_operation(first.message)
    bisection = Bisection(findings.UNEXPLAINED, operation=operation, failure=first.describe())
    if not tries.is_reproduced:
        return replace(bisection, status=findings.NOT_REPRODUCED, trial_count=tries.count)
    if tries.how.level == "dynamo" and tries.how.backend != INDUCTOR:
        text = (
            f"torch's bisector knows the steps of inductor, not of the backend {tries.how.backend}"
        )
        bisection = replace(bisection, backend=tries.how.backend, notes=(text,))
    else:
        bisection = _ask_torch(tries, bisection)
        if (bisection.subsystem is None and bisection.backend in (INDUCTOR, None)) or with_settings:
            bisection = _try_settings(tries, bisection)
    return replace(
        bisection, trial_count=tries.count, notes=(*bisection.notes, *tries.describe_others())
    )


def _ask_torch(tries: RepeatedTry, bisection: Bisection) -> Bisection:
    try:
        bisector = importlib.import_module(BISECTOR).CompilerBisector
    except ModuleNotFoundError:
        return replace(
            bisection, notes=("this torch has no bisector: single settings were tried alone",)
        )
    folder = tries.task.folder / "bisect"
    folder.mkdir()
    bisector.in_process_cache = str(folder)

    def is_good() -> bool:
        backend = bisector.get_backend()
        if tries.how.level == "aot" and backend != INDUCTOR:
            return True  # AOTAutograd is done: earlier stages are not the cause
        subsystem = bisector.get_subsystem()
        tries.task.progress(
            {"text": f"{tries.count} tries, {backend}{f' {subsystem}' if subsystem else ''}"}
        )
        outcome = tries.run(try_bisected, str(folder), backend)
        return not tries.is_same(tries.read(outcome))

    try:
        answer = bisector.do_bisect(is_good)
    except RuntimeError as error:  # the same question had two answers
        return replace(bisection, notes=(f"torch's bisector stopped: {error}",))
    if answer is None:
        return replace(
            bisection, notes=("the graph passes in each step that torch's bisector tries",)
        )
    return _name_application(tries, bisection, answer)


def _name_application(tries: RepeatedTry, bisection: Bisection, answer: Any) -> Bisection:
    bisection = replace(
        bisection,
        status=findings.NAMED if answer.subsystem else findings.UNEXPLAINED,
        backend=answer.backend,
        subsystem=answer.subsystem,
        number=answer.bisect_number,
        application=answer.debug_info,
    )
    if not answer.debug_info:
        return bisection
    node, _, operation = answer.debug_info.partition(": ")
    if answer.subsystem == "lowerings":
        calls = dict(read_value(tries.run(list_operations)))
        return replace(bisection, node=node, operation=operation or calls.get(node))
    if answer.subsystem == "decomposition":
        match = re.search(r"op='([\w.]+)', overload='(\w+)'", answer.debug_info)
        return replace(
            bisection, operation=f"{match[1]}.{match[2]}" if match else answer.debug_info
        )
    return bisection


def _try_settings(tries: RepeatedTry, bisection: Bisection) -> Bisection:
    rows = []
    tried = {"no fusion": NO_FUSION}
    for name, value in SETTINGS.items():
        tried[f"{name}={value}"] = {name: value, **BESIDE.get(name, {})}
    for name, settings in tried.items():
        changed = _find_changes(settings)
        if not changed:
            continue
        tries.task.progress({"text": f"{tries.count} tries, {name}"})
        outcome = tries.attempt(settings=changed)
        is_other = outcome.fails and not tries.is_same(outcome)
        setting, _, value = name.partition("=")
        is_open = is_other or outcome.status in (failure.TIMED_OUT, failure.OUT_OF_MEMORY)
        passes = None if is_open else not outcome.fails
        rows.append(
            TriedSetting(setting, value or "off", passes, None if passes else outcome.describe())
        )
    passing = [row for row in rows if row.passes]
    bisection = replace(bisection, settings=tuple(rows))
    if not passing or bisection.status == findings.NAMED:
        return bisection
    first = min(passing, key=lambda row: row.setting == "no fusion")
    application = first.setting if first.value == "off" else f"{first.setting}={first.value}"
    return replace(
        bisection,
        status=findings.NAMED,
        backend=INDUCTOR,
        subsystem="setting",
        application=application,
        number=None,
    )


def _find_changes(settings: Mapping[str, Any]) -> dict[str, Any]:
    config = importlib.import_module("torch._inductor.config")
    changed = {}
    for name, value in settings.items():
        current: Any = config
        for part in name.split("."):
            current = getattr(current, part, _find_changes)
        if current is not _find_changes and current != value:
            changed[name] = value
    return changed


def try_bisected(
    repro: Repro, device: str | None, how: Judge, folder: str, backend: str
) -> dict[str, Any]:
    bisector = importlib.import_module(BISECTOR).CompilerBisector
    bisector.in_process_cache, bisector.bisection_enabled = folder, True
    _name_lowered_operations(bisector)
    changes = (
        (bisector.get_config_change(INDUCTOR) or {}) if backend == INDUCTOR else {}
    )  # aot_eager reads its own
    module, inputs = load_graph(repro, how.level, device=device)
    return judge(module, inputs, replace(how, backend=backend, settings=changes))


def _name_lowered_operations(bisector: Any) -> None:
    disable = bisector.disable_subsystem

    def disable_named(backend: str, subsystem: str, debug_info: Any = None) -> bool:
        if subsystem == "lowerings" and debug_info is not None:
            return bool(disable(backend, subsystem, lambda: f"{debug_info()}: {_current_target()}"))
        return bool(disable(backend, subsystem, debug_info))

    bisector.disable_subsystem = disable_named


def _current_target() -> str:
    from torch._inductor.virtualized import V

    return str(V.get_current_node().target)
