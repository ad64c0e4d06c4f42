"""Fixes of graph breaks, chosen by torch's registry id and the line that breaks."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable

from compileboard.collectors.fixes.break_sites.labels import name_builtin, name_skipped
from compileboard.collectors.fixes.break_sites.number_use import list_uses
from compileboard.collectors.fixes.break_sites.site import BreakSite
from compileboard.collectors.fixes.break_sites.statement import dotted_name, shorten
from compileboard.collectors.fixes.break_sites.tensor_values import (
    choose_for_branch,
    choose_for_item,
    choose_for_list,
    choose_for_scalar_operator,
    choose_for_shape,
)
from compileboard.collectors.fixes.fix import BreakFacts, SuggestedFix, list_fixes

Choose = Callable[[BreakSite], list[SuggestedFix]]

_ARGUMENT_TYPES = re.compile(r"\.variables\.[\w.]*?(\w+)'>")
_FUNCTION = re.compile(r"<function ([\w.<>]+) at ")
_PRINTABLE = {"TensorVariable", "ConstantVariable", "StringFormatVariable"}
_LOGGER_METHOD = re.compile(r">\.(?P<name>\w+), args")
_LOGGER_METHODS = ("debug", "info", "warning", "error", "critical", "exception", "log")


def suggest_break_fixes(facts: BreakFacts) -> list[SuggestedFix]:
    """List the fixes for one graph break, the best first; empty where nothing is known."""
    site = BreakSite(facts)
    choose = _CHOICES.get(facts.gb_id or "")
    fixes = choose(site) if choose is not None else _choose_by_id(site)
    if facts.skipped_count and site.block in ("for", "while"):
        fixes.append(site.suggest("loop_body"))
    known = (suggested for suggested in fixes if suggested.fix.minimum_torch <= facts.torch_version)
    return list({suggested.fix.id: suggested for suggested in known}.values())


def _choose_by_id(site: BreakSite) -> list[SuggestedFix]:
    """Choose what the catalogue has for the id; a break of no known kind keeps its line out of the graph."""
    ids = [fix.id for fix in list_fixes("graph_break") if site.facts.gb_id in fix.keys]
    return [site.suggest(fix_id, expression=_quote_call(site)) for fix_id in ids] or _choose_around(site)


def _choose_around(site: BreakSite) -> list[SuggestedFix]:
    quoted = _quote_call(site) or (f"`{shorten(site.line)}`" if site.line else None)
    return [site.suggest("parts_around", expression=quoted)] if quoted else []


def _quote_call(site: BreakSite, *names: str) -> str | None:
    """Return the line's call of a name, else its first call by a dotted name."""
    call = site.find_call(*names) if names else None
    call = call or next((call for call in site.calls if "." in dotted_name(call.func)), None)
    return site.quote(call or next(iter(site.calls), None))


def _choose_for_builtin(site: BreakSite) -> list[SuggestedFix]:
    name = name_builtin(site.facts)
    if name == "print":
        return _choose_for_print(site)
    if name == "breakpoint":
        return [site.suggest("breakpoint_removed", edit=site.remove_line())]
    if name == "range":
        call = site.find_call("range")
        return [site.suggest("range_in_caller", expression=site.quote(call.args[-1]) if call and call.args else None)]
    if name == "open":
        return [site.suggest("file_in_caller")]
    if name in ("str", "repr", "format"):
        return [site.suggest("str_in_caller", expression=_quote_call(site, name))]
    return _choose_for_call(site, name or "")


def _choose_for_print(site: BreakSite) -> list[SuggestedFix]:
    expression = _quote_call(site, "print")
    if _is_in_autograd_function(site):
        return [site.suggest("function_pure", edit=site.remove_line())]
    types = set(_ARGUMENT_TYPES.findall(site.facts.context))
    in_caller = site.suggest("print_in_caller", expression=expression)
    removed = site.suggest("print_removed", expression=expression, edit=site.remove_line())
    if types - _PRINTABLE or "True" in site.facts.context.rsplit("]", 1)[-1]:
        return [removed, in_caller]
    return [site.suggest("print_reordered", expression=expression), in_caller, removed]


def _is_in_autograd_function(site: BreakSite) -> bool:
    name = (site.facts.function or "").rsplit(".", 1)[-1]
    return name in ("forward", "backward") and any(
        "autograd.Function" in line or "(ctx" in line for line in site.facts.lines
    )


def _choose_for_logger(site: BreakSite) -> list[SuggestedFix]:
    match = _LOGGER_METHOD.search(site.facts.context)
    call = site.find_call(*_LOGGER_METHODS)
    method = match["name"] if match else dotted_name(call.func).rsplit(".", 1)[-1] if call else ""
    settings: tuple[str, ...] = ()
    if method in _LOGGER_METHODS:
        settings = ("import logging", f"torch._dynamo.config.ignore_logging_functions.add(logging.Logger.{method})")
    expression = _quote_call(site, method or "log")
    return [
        site.suggest("logger_in_caller", expression=expression),
        site.suggest("logger_ignored", expression=expression, settings=settings),
        site.suggest("logger_guarded", expression=expression),
    ]


def _choose_for_skipped(site: BreakSite) -> list[SuggestedFix]:
    """Choose for a function that Dynamo skips, by its module and name."""
    skipped = name_skipped(site.facts) or ""
    module, _, name = skipped.rpartition(".")
    if name == "warn" and "warnings" in module:
        return [*_choose_for_warning(site), site.suggest("warning_in_caller")]
    if module == "time":
        return [site.suggest("time_in_caller")]
    if module in ("Random", "random", "_random"):
        return _choose_for_random(site, name)
    if module in ("torch.random", "torch.cuda.random") or "Generator" in skipped:
        return [site.suggest("seed_in_caller")]
    if module == "torch.serialization":
        return [site.suggest("save_in_caller", expression=_quote_call(site, name))]
    if module.split(".")[0] in ("sys", "inspect", "importlib", "gc", "traceback"):
        return [site.suggest("frame_guarded", expression=_quote_call(site, name))]
    return _choose_for_call(site, name)


def _choose_for_random(site: BreakSite, name: str) -> list[SuggestedFix]:
    """Choose for a number that Python draws: a branch on one of torch's would break the graph too."""
    expression, drawn = _quote_call(site, name), site.find_call(name)
    uses = list_uses(site.statement, drawn, site.following) if site.statement and drawn else set()
    if "branch" not in uses:
        return [site.suggest("random_torch", expression=expression)]
    if site.statement and isinstance(site.statement.node, ast.While):
        return [site.suggest("loop_body")]
    return [site.suggest("random_where", expression=expression)]


def _choose_for_warning(site: BreakSite) -> list[SuggestedFix]:
    statements = ("import warnings", "torch._dynamo.config.reorderable_logging_functions.add(warnings.warn)")
    is_plain = "warnings.warn(" in site.line and "{" not in site.line
    return [site.suggest("warning_reordered", settings=statements if is_plain else ())]


def _choose_for_call(site: BreakSite, name: str) -> list[SuggestedFix]:
    expression = _quote_call(site, *([name] if name else []))
    fix_id = "extension_in_caller" if site.facts.gb_id == "GB0007" else "call_in_caller"
    return [site.suggest(fix_id, expression=expression), *_choose_around(site)]


def _choose_for_method(site: BreakSite) -> list[SuggestedFix]:
    if "datetime." in site.facts.context:
        return [site.suggest("clock_in_caller")]
    return _choose_for_call(site, "")


def _choose_for_numpy(site: BreakSite) -> list[SuggestedFix]:
    call = next((call for call in site.calls if dotted_name(call.func).startswith(("np.", "numpy."))), None)
    if call is None and site.facts.gb_id == "GB0087":
        return _choose_around(site)
    expression = site.quote(call)
    return [site.suggest(fix_id, expression=expression) for fix_id in ("numpy_as_torch", "numpy_custom_op")]


def _choose_for_context(site: BreakSite) -> list[SuggestedFix]:
    items = getattr(site.statement.node, "items", ()) if site.statement else ()
    if "TextIOWrapper" in site.facts.context or "open(" in site.line:
        return [site.suggest("file_in_caller")]
    return [site.suggest("context_in_caller", expression=site.quote(items[0].context_expr) if items else None)]


def _choose_for_copy(site: BreakSite) -> list[SuggestedFix]:
    call = site.find_call("deepcopy")
    argument = call.args[0] if call and len(call.args) == 1 else None
    edit = None
    is_call_of_copy = site.facts.explanation.startswith("Dynamo does not support copy.deepcopy() on tensors")
    if site.statement and site.facts.file and call and argument and is_call_of_copy and _is_tensor_copy(site, argument):
        text = site.statement.segment(argument)
        text = text if isinstance(argument, ast.Name) else f"({text})"
        edit = site.statement.replace(site.facts.file, (call, f"{text}.detach().clone()"))
    return [site.suggest("deepcopy_clone", expression=site.quote(argument), edit=edit)]


def _is_tensor_copy(site: BreakSite, argument: ast.expr) -> bool:
    """Return True if what is copied was computed: a copied module or list breaks for a tensor that it holds."""
    if isinstance(argument, ast.BinOp):
        return True
    name = argument.id if isinstance(argument, ast.Name) else ""
    computed = rf"\b{re.escape(name)} = (?:torch\.(?!nn)|.*[-+*/@])"
    return bool(name) and any(re.search(computed, line) for line in site.facts.lines)


def _choose_for_disabled(site: BreakSite) -> list[SuggestedFix]:
    match = _FUNCTION.search(f"{site.facts.context} {site.facts.explanation}")
    name = f"`{match[1].rsplit('.', 1)[-1]}`" if match else None
    return [site.suggest(fix_id, function=name) for fix_id in ("disable_removed", "disable_nonstrict")]


def _choose_with_setting(first: str, second: str, *names: str) -> Callable[[BreakSite], list[SuggestedFix]]:
    """Return the choice between a rewritten program and a setting."""

    def choose(site: BreakSite) -> list[SuggestedFix]:
        expression = _quote_call(site, *names)
        return [
            site.suggest(first, expression=expression),
            site.suggest(second, expression=expression),
        ]

    return choose


_CHOICES: dict[str, Choose] = {
    "GB0124": choose_for_item,
    "GB0038": choose_for_item,  # a slice by a tensor, until torch 2.9
    "GB0033": choose_for_scalar_operator,
    "GB0109": choose_for_list,
    "GB0170": choose_for_branch,
    "GB0036": choose_for_shape,
    "GB0059": _choose_for_builtin,
    "GB0291": _choose_for_logger,
    "GB0007": _choose_for_skipped,
    "GB0156": _choose_for_method,
    "GB0294": _choose_for_numpy,
    "GB0290": _choose_for_numpy,
    "GB0087": _choose_for_numpy,
    "GB0092": lambda site: [],  # left by an earlier break, whose fix removes it
    "GB0098": _choose_for_disabled,
    "GB0099": _choose_for_disabled,
    "GB0142": _choose_for_context,
    "GB4198": _choose_for_copy,
    "GB0179": _choose_for_copy,
    "GB0025": lambda site: [site.suggest("graph_break_removed", edit=site.remove_line())],
    "GB0123": _choose_with_setting("backward_in_caller", "backward_traced", "backward"),
    "GB9186": _choose_with_setting("grad_func", "grad_traced", "grad"),
    "GB0014": _choose_with_setting("rnn_outside", "rnn_traced"),
    "GB8977": _choose_with_setting("class_outside", "class_traced"),
}
