"""Write short titles of graph breaks and recompiles, with the names in the user's program."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timezone
from typing import Protocol

from compileboard.collectors.contract.categories import label_category
from compileboard.collectors.contract.compile_labels import label_line
from compileboard.collectors.contract.library_names import is_library_name
from compileboard.collectors.contract.verdicts import LABELS
from compileboard.collectors.fixes.fix import (
    Block,
    BreakFacts,
    EagerFunction,
    RecompileFacts,
    TriedFix,
    TriedStep,
)
from compileboard.collectors.fixes.statement import dotted_name, find_statement

MAX_VALUES = 4
MAX_NAMES = 4
_MAX_VALUE_LENGTH = 60
_GLOBAL = re.compile(r"^G\[(['\"])(?P<name>\w+)\1\]")
_LEFT = "the value left by the break"
_SOURCE_VALUE = re.compile(r"\b___stack\d*|\btorch_dynamo_resume_in_\w*")
_SIZE = re.compile(r"\.(?:size|shape|stride|storage_offset)\b")
_LEFT_BY_BREAK = re.compile(r"\b___stack(\d+)")
_OF_HOOK = re.compile(
    r"^.+\._forward_\w*hooks\[.+\]\.(?:__closure__\[\d+\]\.cell_contents|__self__)\.(?=\w)"
)


def name_source(source: str | None, default: str = "the value") -> str:
    """Return a source as the user wrote it: SCALE for G['SCALE'], self for the module behind
    torch's wrapper.
    """
    if not source:
        return default
    source = _GLOBAL.sub(lambda match: match["name"], source)
    source = re.sub(r"^fn\.(?:__self__\.)?", "self.", source)
    source = _OF_HOOK.sub("the hook's ", source)
    source = re.sub(r"\b__import_\w+\.(?=\w)", "", source)
    source = re.sub(r"^(.+)\._parameters$", r"the parameters of \1", source)
    source = re.sub(r"\._(?:modules|parameters|buffers)\[(['\"])(\w+)\1\]", r".\2", source)
    return _SOURCE_VALUE.sub(_LEFT, source)


def name_sources(sources: Sequence[str | None]) -> str:
    names = list(dict.fromkeys(name_source(source) for source in sources))
    return join_names(names)


def name_dimensions(entries: Sequence[tuple[str | None, int | None]]) -> str:
    dims_by_source: dict[str, list[str]] = {}
    for source, dim in entries:
        dims_by_source.setdefault(name_source(source), []).append(
            "that differs" if dim is None else str(dim)
        )
    sources_by_dims: dict[tuple[str, ...], list[str]] = {}
    for source, dims in dims_by_source.items():
        sources_by_dims.setdefault(tuple(dict.fromkeys(dims)), []).append(source)
    return ", ".join(
        f"dimension{'s' * (len(dims) > 1)} {join_names(dims)} of {join_names(sources)}"
        for dims, sources in sources_by_dims.items()
    )


def join_names(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


_UNKNOWN = "a guard of an unknown kind"


def title_recompiles(changes: Sequence[RecompileFacts], is_together: bool = True) -> str:
    """Return a title that names what changed and, for several sources, whether they change
    together.
    """
    if len(changes) == 1:
        (only,) = changes
        if len({dim for _source, dim in only.sizes}) > 1 and not only.after_break:
            return f"{_capitalize(name_dimensions(only.sizes))} change"
        values = only.values if only.is_one_series else ()
        return title_recompile(
            only.category, only.source, only.siblings, only.dim, values, only.after_break
        )
    sized = {
        source
        for facts in changes
        if facts.category == "tensor_size"
        for source in (facts.source, *facts.siblings)
    }
    strides = [one for one in changes if one.category == "tensor_stride" and one.source in sized]
    names = [_name_change(facts) for facts in changes if facts not in strides]
    names += ["its stride" if len(strides) == 1 else "their strides"] if strides else []
    if names.count(_LEFT) > 1:
        names = ["the values left by the break", *(name for name in names if name != _LEFT)]
    more = f", {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    how = "together" if is_together else "one at a time"
    title = f"{join_names(names[:MAX_NAMES])}{more} change {how}"
    return f"The {title[4:]}" if title.startswith("the ") else title


def _name_change(facts: RecompileFacts) -> str:
    if facts.category in ("tensor_size", "tensor_stride") and facts.source:
        kind = facts.category.removeprefix("tensor_")
        return f"the {kind} of {', '.join(map(name_source, (facts.source, *facts.siblings)))}"
    category = label_category(facts.category)
    label = _UNKNOWN if facts.category == "unknown" else category.label.lower()
    return label if category.title else name_source(facts.source, label)


def title_recompile(
    category: str,
    source: str | None,
    siblings: Sequence[str] = (),
    dim: int | None = None,
    values: Sequence[str] = (),
    after_break: bool = False,
) -> str:
    """Return the short title of a recompile's cause. Names in code after a graph break are
    Dynamo's, not the user's.
    """
    kind = label_category(category)
    if kind.title:
        return kind.title
    names = ", ".join(" ".join(name_source(name).split()) for name in (source, *siblings) if name)
    label = kind.label
    # Nothing recorded tells two objects of one type apart, except members of an Enum.
    is_told = category != "object_identity" or len(values) > 1
    changes = _describe_values(values if is_told else ())
    if after_break or _LEFT_BY_BREAK.search(source or ""):
        return (
            f"{'Size' if category == 'tensor_size' else label} after a graph break changes{changes}"
        )
    if category == "unknown":
        return f"{_capitalize(_UNKNOWN)} fails"
    if category == "symbolic_shape" and names and not _SIZE.search(source or ""):
        return f"Condition on {names} changes"
    if category == "tensor_size" and names:
        subject = f"Dimension {dim} of {names}" if dim is not None else f"Size of {names}"
        return f"{subject} changes{changes}"
    if category in (
        "int_value",
        "float_value",
        "string_value",
        "other_value",
        "module_attribute",
        "global_value",
    ) or (category == "object_identity" and changes):
        return f"{names or 'A value'} changes{changes}"
    return f"{label} of {names} changes{changes}" if names else f"{label} changes{changes}"


def name_stack_values(text: str) -> str:
    """Replace Dynamo's names of values left on the stack by a graph break: ___stack0 becomes value
    0 on the stack.
    """
    return _LEFT_BY_BREAK.sub(r"value \1 on the stack", text)


def _describe_values(values: Sequence[str]) -> str:
    if not values:
        return ""
    shown = [_shorten_value(value) for value in values[:MAX_VALUES]]
    if len(values) == 1:
        return f" from {shown[0]}"
    more = f" → … ({len(values)} values)" if len(values) > MAX_VALUES else ""
    return f": {' → '.join(shown)}{more}"


def _shorten_value(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _MAX_VALUE_LENGTH else text[: _MAX_VALUE_LENGTH - 1] + "…"


def strip_ticks(title: str) -> str:
    """Return a title as plain text, without the backticks around code."""
    return title.replace("`", "")


class HasSavings(Protocol):
    @property
    def saved_us(self) -> int | None: ...

    @property
    def measured(self) -> TriedFix | None: ...

    @property
    def measured_step(self) -> TriedStep | None: ...

    @property
    def step_trial(self) -> TriedFix | None: ...

    @property
    def verified(self) -> TriedFix | None: ...

    @property
    def together(self) -> TriedFix | None: ...

    @property
    def clock_us(self) -> int | None: ...

    @property
    def beyond(self) -> int | None: ...

    @property
    def step_us(self) -> int | None: ...

    @property
    def run_us(self) -> int | None: ...

    @property
    def whole_step_us(self) -> int | None: ...

    @property
    def is_fixable(self) -> bool: ...

    @property
    def is_expected(self) -> bool: ...

    @property
    def is_eager(self) -> bool: ...

    @property
    def eager_function(self) -> str: ...


def describe_slower(name: str, change: float | None, word: str) -> str | None:
    """Return "compile time 12% more" if a trial's metric is a time that grew by more than noise."""
    label = {"compile_s": "compile time", "abs_latency_ms": "step"}.get(name)
    if label is None or word not in ("worse", "single") or not change or change < 0:
        return None
    return f"{label} {change:.0%} more{' in one execution' if word == 'single' else ''}"


def list_eager(causes: Iterable[HasSavings]) -> list[str]:
    """Return which functions run eagerly, two by name: ["f runs eagerly", "g runs eagerly"]."""
    eager = [cause for cause in causes if cause.is_eager and not cause.is_expected]
    names = list(dict.fromkeys(cause.eager_function for cause in eager))
    more = len(names) - 2
    rest = [f"{more} more function{'s' if more > 1 else ''} too"] if more > 0 else []
    return [*(f"{name} runs eagerly" for name in names[:2]), *rest]


def takes_longer(cause: HasSavings) -> bool:
    """Return whether a cause's verified fix costs the run time."""
    return bool(cause.verified and cause.verified.slower) and (cause.run_us or 0) <= 0


def saves_nothing(cause: HasSavings) -> bool:
    """Return whether a trial measured that a cause's fix saves no time."""
    return cause.measured is not None and (cause.saved_us or 0) <= 0 and not cause.step_us


def describe_saving(cause: HasSavings, format_duration: Callable[[int], str]) -> str | None:
    """Return "saves an estimated 1.20 s", or what a trial measured; None if nothing was timed."""
    step = ""
    if cause.measured_step is None and cause.step_us:
        of_run = format_duration(cause.run_us or 0)
        step = f"{format_duration(cause.step_us)} of each step: {of_run} of the run"
    measured = []
    if cause.measured is not None:
        base, new = (
            format_duration(us or 0) for us in (cause.measured.base_us, cause.measured.new_us)
        )
        once = " in one execution" if cause.measured.is_single else ""
        once = f" ({LABELS['noise']})" if cause.measured.is_noise else once
        measured.append(f"compile time {base} → {new}{once}")
    if cause.measured_step is not None:
        tried = cause.measured_step
        base, new = (format_duration(round(us)) for us in (tried.base_us, tried.new_us))
        once = "" if tried.is_judged else " in one execution"
        measured.append(f"step {base} → {new}{once}")
    trial = cause.verified or cause.step_trial
    if measured and trial is not None:
        day = datetime.fromtimestamp(trial.ended_us / 1e6, timezone.utc).date()
        estimate = f"; an estimated {step}" if step else ""
        word = "verified" if trial.is_verified else "measured"
        fewer = [trial.fewer] if trial.is_verified and trial.slower and trial.fewer else []
        if takes_longer(cause):
            steps = [text for text in measured if text.startswith("step ")]
            return f"verified {day}: {', '.join([*fewer, *trial.slower, *steps])}"
        measured = [*fewer, *measured]
        return f"{', '.join(measured)}, {word} {day}{estimate}"
    verb = "saves" if cause.is_fixable else "takes"
    beyond = f" beyond fix {cause.beyond}" if cause.beyond else ""
    if cause.saved_us:
        amount = f"an estimated {format_duration(cause.saved_us)}{beyond}"
        return f"{verb} {amount}, and {step}" if step else f"{verb} {amount}"
    if step:
        return f"{verb} an estimated {step}{beyond}"
    if cause.saved_us is None or not cause.is_fixable:
        return None
    return f"{verb} no compile time{beyond}"


NOTHING_TO_FIX = "Nothing to fix: 1 graph per function, no recompiles"


def describe_savings(
    causes: Sequence[HasSavings],
    compile_us: int | None,
    format_duration: Callable[[float | None], str],
    problems: str = "",
) -> str:
    """Return "4 fixes save an estimated 3.09 s of 5.87 s compile time", or what was measured.

    `problems` are named where no cause is anything to fix.
    """
    fixable = [cause for cause in causes if cause.is_fixable]
    saved_us = sum(max(0, cause.saved_us or 0) for cause in fixable or causes)
    step = _describe_step(fixable or causes, format_duration)
    clock_us = causes[0].clock_us if causes else None
    whole_us = clock_us or compile_us
    time = "compile time by the clock" if clock_us else "compile time"
    whole = f"of {format_duration(whole_us)} {time}" if whole_us else f"of {time}"
    if fixable:
        in_vain = sum(map(saves_nothing, fixable))
        is_any_saved = bool(saved_us or step)
        subject, verb = _count_fixes(len(fixable) - in_vain * is_any_saved, len(fixable))
        in_steps = [cause for cause in fixable if cause.step_us]
        tried_steps = [cause.measured_step for cause in in_steps]
        is_step_judged = all(tried and tried.is_judged for tried in tried_steps)
        if not saved_us and step:
            if not is_step_judged:
                return f"{subject} {verb} an estimated {step}"
            subject, verb = _count_fixes(len(in_steps), len(fixable))
            is_verified = all(cause.verified for cause in in_steps)
            return f"{subject} {verb} {step}, {'verified' if is_verified else 'measured'}"
        if all(cause.saved_us is None for cause in fixable):
            return f"{subject} known, saved compile time not recorded"
        if not saved_us:
            verified = ", verified" if in_vain == len(fixable) else ""
            return f"{subject} known, {verb} no compile time{verified}"
        saving = [cause for cause in fixable if (cause.saved_us or 0) > 0]
        if whole_us and all(cause.measured for cause in saving):
            saved = f"{saved_us / whole_us:.0%} {whole}"
            if step and not is_step_judged:
                step = f"an estimated {step}"
            time = f"{time} ({format_duration(whole_us)})"
            return _describe_verified(fixable, saved, step, whole, time)
        estimate = f"{subject} {verb} an estimated {format_duration(saved_us)} {whole}"
        return f"{estimate}, and {step}" if step else estimate
    if all(cause.is_expected for cause in causes):
        expected = "1 cause is" if len(causes) == 1 else f"{len(causes)} causes are"
        start = f"{problems};" if problems else "Nothing to fix:"
        return f"{start} {expected} as expected"
    subject = "1 cause" if len(causes) == 1 else f"{len(causes)} causes"
    verb = "costs" if len(causes) == 1 else "cost"
    costs = [f"{format_duration(saved_us)} {whole}"] if saved_us else []
    costs += [step] if step else []
    cost = (
        f"{verb} an estimated {' and '.join(costs)}" if costs else "of graph breaks or recompiles"
    )
    return f"{subject} {cost}, no fix is known"


def _describe_verified(
    fixable: Sequence[HasSavings], saved: str, step: str, whole: str, time: str
) -> str:
    """Describe what fixes save if the saving of each was measured."""
    saving = [cause for cause in fixable if (cause.saved_us or 0) > 0]
    groups = {cause.together for cause in saving}
    together = groups.pop() if len(groups) == 1 else None
    if together and together.is_noise:
        count = sum(cause.together == together for cause in fixable)
        subject, _verb = _count_fixes(count, len(fixable))
        return f"{subject}, verified each alone; together no clear difference in {time}"
    if len(saving) == 1 or together:
        count = sum(bool(step and cause.step_us) or cause in saving for cause in fixable)
        subject, verb = _count_fixes(count, len(fixable))
        return f"{subject} {verb} {saved}, verified{f', and {step}' if step else ''}"
    subject, _verb = _count_fixes(len(saving), len(fixable))
    shares = [cause.measured.saved_share or 0.0 for cause in saving if cause.measured]
    return f"{subject}, verified each alone: the best saves {max(shares):.0%} {whole}"


def _count_fixes(count: int, fix_count: int) -> tuple[str, str]:
    """Return a subject and its verb: "1 of 2 fixes", "saves"."""
    subject = "1 fix" if fix_count == 1 else f"{fix_count} fixes"
    subject = subject if count == fix_count else f"{count} of {subject}"
    return subject, "saves" if count == 1 else "save"


def _describe_step(
    causes: Sequence[HasSavings], format_duration: Callable[[float | None], str]
) -> str:
    """Return "85 µs of each 506 µs step", "" if no step was timed."""
    step_us = sum(cause.step_us or 0 for cause in causes)
    whole_us = max((cause.whole_step_us or 0 for cause in causes), default=0)
    if step_us <= 0:
        return ""
    return f"{format_duration(min(step_us, whole_us))} of each {format_duration(whole_us)} step"


_LABELS = {
    "GB0003": "Generator function",
    "GB0007": "Call that Dynamo skips",
    "GB0014": "RNN, GRU or LSTM module",
    "GB0015": "Sparse tensor",
    "GB0025": "`torch._dynamo.graph_break()` call",
    "GB0033": "Operator that returns a number",
    "GB0036": "Dynamic shape operator",
    "GB0039": "Recompile limit reached",
    "GB0046": "Inference mode check",
    "GB0055": "Argument that a graph cannot hold",
    "GB0056": "Assignment to `.data`",
    "GB0059": "Builtin that Dynamo cannot trace",
    "GB0083": "Backward hook of a module",
    "GB0087": "Operator without a fake implementation",
    "GB0088": "Exception that Dynamo met",
    "GB0092": "Value that cannot be rebuilt after a break",
    "GB0098": "`torch.compiler.disable` function",
    "GB0099": "`torch.compiler.disable` function",
    "GB0107": "`.random_()` call",
    "GB0108": "`.retain_grad()` call",
    "GB0109": "`.tolist()` of floats",
    "GB0123": "`.backward()` call",
    "GB0124": "`.item()` on a tensor",
    "GB0125": "`.requires_grad_()` call",
    "GB0126": "`.resize_()` call",
    "GB0142": "Unknown context manager",
    "GB0156": "Method that Dynamo cannot trace",
    "GB0170": "Branch on a tensor",
    "GB0206": "Assignment to `.requires_grad`",
    "GB0207": "Sort of tensors in Python",
    "GB0208": "torch function that returns a number",
    "GB0225": "Tensor created with `requires_grad=True`",
    "GB0246": "`one_hot` without `num_classes`",
    "GB0247": "`out=` of another shape",
    "GB0264": "`nn.Parameter` created",
    "GB0291": "Logger call",
    "GB0294": "NumPy function that torch lacks",
    "GB0296": "Print that cannot be reordered",
    "GB0363": "`torch.Generator` created",
    "GB0569": "`repr()` of a tensor",
    "GB2019": "`ctx.mark_dirty` in an autograd.Function",
    "GB2464": "`ctx.mark_dirty` in an autograd.Function",
    "GB4198": "`copy.deepcopy` of a tensor",
    "GB4315": "Operator error inside `try`",
    "GB4695": "`torch.jit.script` module",
    "GB4841": "Call that Dynamo cannot trace",
    "GB7000": "Graph break in a loop",
    "GB7650": "`torch.Generator` method",
    "GB8977": "Class defined in the function",
    "GB8985": "`.requires_grad_()` call",
    "GB9186": "`torch.autograd.grad` call",
}
_CONSEQUENCES = ("GB0092", "GB7000")
_BUILTIN = re.compile(r"builtin (?:operator )?`?([A-Za-z_]\w*)`?")
_QUALNAME = re.compile(r"module: (?P<module>[^,]*), qualname: (?P<name>[\w.]+)")
_OF_SKIPPED = re.compile(r"(?:\bbuiltin|\bthe function) `([\w.]*\w)\.?`")
_INNER = {
    **dict.fromkeys(("listcomp>", "setcomp>", "dictcomp>"), "comprehension"),
    "genexpr>": "generator",
    "lambda>": "lambda",
}
_BRANCHES = {
    "if": "`if` on a tensor",
    "while": "`while` on a tensor",
    "assert": "`assert` on a tensor",
}


# Where torch's own wrapper of a model breaks the graph, so that the model is compiled on its own.
_OF_DDP = ("_inside_ddp_forward", "set_runtime_stats_and_log")


def is_of_ddp(facts: BreakFacts) -> bool:
    return any(name in facts.context or name in facts.explanation for name in _OF_DDP)


def name_builtin(facts: BreakFacts) -> str | None:
    match = _BUILTIN.search(facts.context) or _BUILTIN.search(facts.explanation)
    return match[1] if match else None


def name_skipped(facts: BreakFacts) -> str | None:
    match = _QUALNAME.search(facts.context)
    if match is None:  # lists of graph breaks have no context
        explained = _OF_SKIPPED.search(facts.explanation)
        return explained[1] if explained else None
    module = match["module"].strip()
    return match["name"] if module.startswith("<") or not module else f"{module}.{match['name']}"


_EXPLAINED = re.compile(
    r"([\w.]+)(?:\(\))?`?(?: should not be traced|, got unsupported return| is not modelled)"
)
_NUMBER_OF = re.compile(r"\b(float|int|bool)\(")


def label_break(facts: BreakFacts) -> str:
    gb_id = facts.gb_id or ""
    line = (facts.source_line or "").strip()
    if is_of_ddp(facts):
        return "Graph break of `DistributedDataParallel` itself"
    if gb_id == "GB0059" and (builtin := name_builtin(facts)):
        return f"`{builtin}` call"
    if gb_id == "GB0007" and (skipped := name_skipped(facts)):
        return f"`{_name_written(facts, skipped)}` call"
    if gb_id in ("GB0008", "GB0158", "GB0292") and (named := _EXPLAINED.search(facts.explanation)):
        return f"`{named[1]}` call"
    if gb_id == "GB0208" and line.startswith("with "):
        return _LABELS["GB0142"]
    if gb_id == "GB0170":
        return _BRANCHES.get(line.split("(")[0].split(" ")[0].removeprefix("el"), _LABELS[gb_id])
    if gb_id == "GB0124" and ".item(" not in line and (call := _NUMBER_OF.search(line)):
        return f"`{call[1]}()` on a tensor"
    if gb_id == "GB0033" and ".tolist(" in line:
        return "`.tolist()` on a tensor"
    if gb_id == "GB0025" and (called := _name_called(facts)):
        return f"`{called}` call"
    first = (facts.gb_type or facts.reason).strip().split("\n")[0]
    return _LABELS.get(gb_id) or first[:120] or "Graph break without a reason"


def title_breaks(breaks: Sequence[BreakFacts], eager: Sequence[EagerFunction] = ()) -> str:
    own = [facts for facts in breaks if facts.gb_id not in _CONSEQUENCES] or breaks
    title = ", then ".join(list(dict.fromkeys(label_break(facts) for facts in own))[:2])
    if not eager:
        return title
    first = eager[0]
    place = f" in {first.file}" if is_library_name(first.file or "") else ""
    title = f"{_capitalize(name_eager(first))}{place} runs eagerly: {title}"
    return f"{title} in its {_name_block(first.block)}" if first.block else title


def _name_block(block: Block) -> str:
    kind = {"with": " block", "try": " block", "comprehension": ""}.get(block, " loop")
    return f"`{block}`{kind}" if kind else block


def name_eager(part: EagerFunction) -> str:
    """Return `Net.forward`, "the rest of `step`" or "a comprehension in `f`"."""
    outer, _, inner = (part.function or "").rpartition("<")
    name = f"`{part.function}`" if part.function else "a function"
    if inner in _INNER:
        outer = outer.removesuffix(".<locals>.")
        name = f"a {_INNER[inner]}" + (f" in `{outer}`" if outer else "")
    return f"the rest of {name}" if part.is_rest else name


def describe_eager(part: EagerFunction, broken: str | None) -> str:
    """Describe which function runs eagerly, from which line, and which part of it has the break."""
    place = f" ({label_line(part.file, part.line)})" if part.file else ""
    called = f", called at {part.called_at}," if part.called_at else ""
    sentence = f"{_capitalize(name_eager(part))}{place}{called} runs eagerly"
    if part.block is None:
        return f"{sentence}."
    at = f" at line {part.block_line}" if part.block_line else ""
    what = "breaks" if broken == part.function else "calls what breaks"
    return f"{sentence}: its {_name_block(part.block)}{at} {what}."


def _capitalize(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def _name_called(facts: BreakFacts) -> str | None:
    """Return the function that a line calls and in which `graph_break()` is called, as in an
    optimizer's step; None if the line calls `graph_break()` itself.
    """
    statement = find_statement(facts)
    names = [dotted_name(call.func) for call in statement.calls()] if statement else []
    is_own = any(name.endswith("graph_break") for name in names)
    return None if is_own else next(filter(None, names), None)


def _name_written(facts: BreakFacts, skipped: str) -> str:
    statement = find_statement(facts)
    last = skipped.rsplit(".", 1)[-1]
    for call in statement.calls() if statement else ():
        name = dotted_name(call.func)
        if name.rsplit(".", 1)[-1] == last:
            return name
    return skipped
