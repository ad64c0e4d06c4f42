"""Fixes of recompiles, chosen by the failed guard."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from compileboard.collectors.contract.events import GuardFailure
from compileboard.collectors.fixes.cache_entries import ARGUMENTS, is_of_enum
from compileboard.collectors.fixes.fix import (
    RecompileFacts,
    RecordedGuard,
    SuggestedFix,
    find_fix,
    list_fixes_for,
)
from compileboard.collectors.fixes.preconditions import (
    Use,
    list_container_reads,
    list_functions,
    list_looped_dims,
    list_readings,
)
from compileboard.collectors.fixes.statement import Statement, dotted_name, parse_statement
from compileboard.collectors.fixes.titles import (
    join_names,
    name_dimensions,
    name_source,
    name_sources,
)

_LONGEST = 2_000  # characters; a longer source is not worth the parser's memory
_ROOT = re.compile(r"^(?P<root>[A-Za-z_]\w*)(?P<rest>.*)$", re.DOTALL)
_ENTRY = re.compile(r"^(?P<scope>[LG])\['(?P<name>\w+)'\](?P<rest>[^\s,:]*):(?P<dim>\d{1,4})$")
_KEYWORD = re.compile(r"^kwargs\[(['\"])(?P<name>\w+)\1\]")


def parse_dynamic_source(entry: str) -> tuple[str, int] | None:
    """Parse "L['x'].y:0" as source x.y and dimension 0; None for a number, a parameter or the base
    of a view.
    """
    match = _ENTRY.match(entry)
    if match is None or re.search(r"\._(?:parameters|buffers)\[|\._base\b", entry):
        return None
    source = (
        f"G['{match['name']}']{match['rest']}"
        if match["scope"] == "G"
        else f"{match['name']}{match['rest']}"
    )
    return (source, int(match["dim"])) if _is_path(source) else None


def format_dynamic_sources(
    sources: Sequence[tuple[str, int | None]], torch_version: tuple[int, int]
) -> str | None:
    """Format a value of torch.compiler.config.dynamic_sources, None if torch's version or a name
    does not allow it.
    """
    if torch_version < (2, 7):
        return None
    entries = []
    for source, dim in sources:
        entry = _format_entry(source)
        if entry is None:
            return None
        entries.append(entry if dim is None or torch_version < (2, 13) else f"{entry}:{dim}")
    return ",".join(dict.fromkeys(entries))


def _format_entry(source: str) -> str | None:
    match = _ROOT.match(source)
    if match is None or re.search(r"[\s,:]", source) or not _is_path(source):
        return None
    return source if match["root"] == "G" else f"L['{match['root']}']{match['rest']}"


def _is_path(source: str) -> bool:
    if len(source) > _LONGEST or "\x00" in source:
        return False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            node: ast.AST = ast.parse(source, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    while isinstance(node, ast.Attribute | ast.Subscript):
        if isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Constant):
            return False
        node = node.value
    return isinstance(node, ast.Name)


# What dynamic=True does, for every torch.compile
ALL_DYNAMIC = "torch._dynamo.config.assume_static_by_default = False"
# Instead of a needless fix, where the recompile limit was reached
AT_THE_LIMIT = "variants-at-the-limit"

_DYNAMIC_SOURCES = "torch.compiler.config.dynamic_sources = "
_DIM = re.compile(r"\bat index (\d{1,4})")
_CHANGED = re.compile(r"GLOBAL_STATE changed:\s*(\w+)")
_BLANK = re.compile(
    r"\{(source|sources|value|dim|dimensions|others|name|symbol|expected|expression|item|before"
    r"|scheduled|entries|kept)\}"
)
_SIZE_OF = re.compile(r"(?P<tensor>.+?)\.(?:size\(\)|shape)\[(?P<dim>\d{1,4})\]")
_BREAK_VALUE = re.compile(r"\b___stack\d+|\btorch_dynamo_resume_in_")
_RESUME = "torch_dynamo_resume_in_"
_OWN_ROOT = re.compile(r"^(?:self|G)\b")  # the same object in code after a graph break
_WRAPPER = ("wrap_inline", "external_utils.py")
_PARAMETER = re.compile(r"Guard failed on a parameter|\._(?:parameters|buffers)\[")
_SIZE = re.compile(r"\.(?:size|shape)\b")
_ZERO_OR_ONE = re.compile(r"^\s*[12] <= |(?:!=|\bNe\(.*,) [01]\)?\s*$")
_INT = re.compile(r"-?\d+")
_FLOAT = re.compile(r"-?(?:\d+\.\d*|\d*\.?\d+e[-+]?\d+|nan|inf)")
_SIZE_BRANCH = re.compile(r"\b(?:if|elif|while|assert)\b.*(?:\.shape|\.size\(|\blen\()")
_REDUCTION = re.compile(
    r"\.(?:mean|sum|std|var|softmax)\(\)|loss\(|\.softmax\((?:dim=)?0|BatchNorm"
)
_COUNT = re.compile(r"(?:\+|-)=")
_LAYER = re.compile(r"(?:^|_)(?:idx|index|layer|layer_id|depth)$|layer", re.IGNORECASE)
_LOOP_OR_BRANCH = (
    r"\b(?:range|if|elif|while|assert)\b.*\b{name}\b"
    r"|\b{name}\b\s*(?:[<>]|[=!]=)"
    r"|\[[^\],:]*\b{name}\b[^\],:]*\]\("
)
_SUBSCRIPT = r"[\w)\]]\[[^\],:]*\b{name}\b[^\],:]*\]"
_POSITION = r"[\w)\]]\[(?:[^\]]*,[^\],:]*\b{name}\b[^\],:]*[,\]]|[^\],:]*\b{name}\b[^\],:]*,)"
_BOOLS = {"True", "False"}
_DTYPE = r"(?:\b{name}\.(?:dtype|is_\w+\(\))|\bis_\w+\({name}\))"
_LOOKED_UP = r"(?:getattr\([^)]*|\.get\(|\[)\b{name}\b"
_SPLIT = r"\bsplit\w*\([^)]*\b{name}"
_MUTATION = re.compile(r"\.(?:append|extend|insert|add|pop|update)\(|\+=|\]\s*=")
# What torch calls a forward hook by, or how one is written: its caller is torch's.
_OF_HOOK = re.compile(
    r"\._forward_\w*hooks\["
    r"|\bdef \w+\((?:self, *)?(?:mod\w*|m|layer|_\w*)\b[^,()]*, *\w+[^,()]*, *"
    r"(?:out|result)\w*[^,()]*\)"
)
# What a tensor of one number can do as well.
_OF_TENSORS = {"tensor", "returned", "stored"}
# A type that `torch.as_tensor` makes a tensor of: `a tensor`, `<class 'int'>`.
_NUMBER_OR_TENSOR = re.compile(r"\b(?:[Tt]ensor|bool|complex|float|int|ndarray)\b(?:'>)?$")
_OF_OPTIMIZER = re.compile(r"self\.state\[list\(dict\.keys\(self\.state\)\)")
_RATE = re.compile(r"self\.param_groups\[\d+\]\['lr'\]")
_OF_DICT = re.compile(r"\.(?:values|items|keys)\(")


def suggest_recompile_fixes(facts: RecompileFacts) -> list[SuggestedFix]:
    if _is_left_by_break(facts):
        chosen: Chosen = _after_break(facts)
    elif (
        "_base" in (facts.source or "").rpartition(".")[2]
        or "'NoneType' object has no attribute" in facts.reason
    ):
        chosen = ["view-of-a-tensor"]
    else:
        chosen = _BY_CATEGORY.get(facts.category, _choose_by_category)(facts)
    suggestions = []
    for choice in chosen:
        fix_id, settings = (choice, None) if isinstance(choice, str) else choice
        fix = find_fix("recompile", fix_id)
        if fix.is_needless and facts.is_eager:  # what is needed once costs every call here
            fix = find_fix("recompile", AT_THE_LIMIT)
        if fix.minimum_torch <= facts.torch_version:
            title = fix.warn(_fill_title(fix.title, facts))
            own = fix.settings if settings is None else settings
            own = () if facts.is_static and ALL_DYNAMIC in own else own
            if ALL_DYNAMIC in own and fix_id in ("float", "attribute-float"):
                title = f"{title}. Or set `{ALL_DYNAMIC}`, for all numbers and sizes at once"
            suggestions.append(SuggestedFix(fix, title, settings=own))
    return sorted(suggestions, key=lambda suggested: suggested.fix.changes is not None)


def suggest_together(changes: Sequence[RecompileFacts]) -> list[SuggestedFix]:
    """Suggest fixes for sources that change together: fixing only one would avoid nothing."""
    categories = tuple(facts.category for facts in changes)
    groups: dict[str | None, RecompileFacts] = {}
    for facts in changes:
        facts = replace(facts, together=categories)
        first = next((suggested.fix.id for suggested in suggest_recompile_fixes(facts)), None)
        if first not in groups:
            groups[first] = facts
        elif facts.source and facts.source != groups[first].source:
            known = groups[first]
            more = dict.fromkeys((*known.siblings, facts.source, *facts.siblings))
            sizes = dict.fromkeys((*known.sizes, *facts.sizes)) if known.sizes else ()
            groups[first] = replace(known, siblings=tuple(more), sizes=tuple(sizes))
    if "layer-index" in groups:  # a whole model does not reach its layers' limit
        groups.pop(AT_THE_LIMIT, None)
    options = [suggest_recompile_fixes(facts) for facts in groups.values()]
    if len(options) < 2:
        return options[0] if options else []
    if not all(options):
        return []
    firsts = [suggested for suggested, *_ in options]
    needless = next((suggested for suggested in firsts if suggested.fix.is_needless), None)
    if needless is not None:
        return [needless]
    titles = [suggested.title for suggested in firsts]
    settings = [statement for suggested in firsts for statement in suggested.settings]
    has_all = all(suggested.settings for suggested in firsts)
    return [
        SuggestedFix(
            next((one for one in firsts if one.fix.is_unsure), firsts[0]).fix,
            f"Together: {'. '.join(titles)}",
            settings=(join_settings(settings) if has_all else None) or (),
            parts=tuple(titles),
        )
    ]


def join_settings(statements: Iterable[str]) -> tuple[str, ...] | None:
    """Join statements; None if two set the same option differently. Lists of sources are merged."""
    joined: dict[str, str] = {}
    sources: dict[str, None] = {}
    for statement in statements:
        if statement.startswith(_DYNAMIC_SOURCES):
            text = ast.literal_eval(statement.removeprefix(_DYNAMIC_SOURCES))
            sources.update(dict.fromkeys(text.split(",")))
            statement = f"{_DYNAMIC_SOURCES}{','.join(sources)!r}"
        elif joined.get(statement.partition(" = ")[0], statement) != statement:
            return None
        joined[statement.partition(" = ")[0]] = statement
    return tuple(joined.values())


def describe_guard_fixes(
    guard: GuardFailure | RecordedGuard,
    *,
    file: str | None = None,
    after_break: bool = False,
) -> str | None:
    dim = _DIM.search(guard.reason)
    facts = RecompileFacts(
        category=guard.category,
        source=guard.source,
        dim=int(dim[1]) if dim else None,
        values=tuple(value for value in (guard.expected, guard.actual) if value),
        reason=guard.reason,
        file=file,
        source_line=guard.source_line,
        after_break=after_break,
    )
    suggestions = suggest_recompile_fixes(facts)
    if suggestions and suggestions[0].fix.is_needless:
        return suggestions[0].title
    return ". ".join(suggested.title for suggested in suggestions) or None


Chosen = Sequence[
    str | tuple[str, tuple[str, ...]]
]  # ids of fixes, with other settings than the catalogue's


def _is_left_by_break(facts: RecompileFacts) -> bool:
    source = facts.source or ""
    if _BREAK_VALUE.search(source):
        return True
    resumed = facts.after_break or _RESUME in (facts.function or "")
    return resumed and bool(source) and not _OWN_ROOT.match(source)


def _after_break(facts: RecompileFacts) -> Chosen:
    if facts.category == "tensor_size" and not _has_zero_or_one(facts):
        return ["value-after-a-break", "size-after-a-break"]
    return ["value-after-a-break"]


def _list_other_sizes(facts: RecompileFacts) -> set[str]:
    """Return the sizes that can share a compile, which 0 and 1 never can."""
    return set(facts.values) - {"0", "1"}


def _has_zero_or_one(facts: RecompileFacts) -> bool:
    return bool({"0", "1"} & set(facts.values))


def _list_dimensions(facts: RecompileFacts) -> list[tuple[str, int | None]]:
    parsed = [parse_dynamic_source(entry) for entry in facts.dynamic_sources]
    known = [dimension for dimension in parsed if dimension is not None]
    own: list[tuple[str, int | None]] = [
        (source, facts.dim) for source in (facts.source, *facts.siblings) if source
    ]
    listed = list(known) or list(facts.sizes) or own
    return [(source, dim) for source, dim in listed if not _BREAK_VALUE.search(source)]


def _dynamic_settings(
    sources: Sequence[tuple[str, int | None]], facts: RecompileFacts
) -> tuple[str, ...]:
    text = format_dynamic_sources(sources, facts.torch_version)
    return (f"{_DYNAMIC_SOURCES}{text!r}",) if text else ()


def _choose_by_category(facts: RecompileFacts) -> Chosen:
    fixes = list_fixes_for("recompile", facts.category)
    return [fix.id for fix in fixes if fix.id != AT_THE_LIMIT]


def _dynamic_source_settings(facts: RecompileFacts) -> tuple[str, ...]:
    sources = [source or "" for source in (facts.source, *facts.siblings)]
    return _dynamic_settings(
        [(one, None) for one in sources if not _BREAK_VALUE.search(one)], facts
    )


def _quote_entries(facts: RecompileFacts) -> str | None:
    """Quote the names of the sources in the setting, which may differ from those in the user's
    code.
    """
    named = [
        ast.literal_eval(one.removeprefix(_DYNAMIC_SOURCES))
        for one in _dynamic_source_settings(facts)
    ]
    return f"`{named[0]}`" if named else None


def _choose_for_size(facts: RecompileFacts) -> Chosen:
    if _PARAMETER.search(f"{facts.reason} {facts.source}"):
        return [("size-of-a-parameter", _dynamic_source_settings(facts))]
    source = "\n".join(facts.lines)
    if _has_zero_or_one(facts) and len(_list_other_sizes(facts)) < 2:
        if _SIZE_BRANCH.search(source):
            return ["size-zero-or-one"]
        is_last = facts.dim == 0 and facts.values[0] not in ("0", "1") and "0" not in facts.values
        if is_last and not _REDUCTION.search(source):
            return ["last-batch", "size-zero-or-one", "size-unbacked"]
        return ["size-zero-or-one", "size-unbacked"]
    fixed = "|".join(re.escape(value) for value in facts.values if _INT.fullmatch(value))
    if fixed and re.search(
        rf"(?:\.shape\[-?\d\]|\.size\(-?\d\)|\blen\(\w+\))\s*==\s*(?:{fixed})\b"
        rf"|\.(?:view|reshape|expand|split)\([^)]*(?<![-.\w\[])(?:{fixed})\b(?!\])",
        source,
    ):
        return ["size-in-the-code"]
    dimensions = _list_dimensions(facts)
    if _is_size_looped(facts):
        return ["size-that-a-loop-runs-to", "size-in-buckets"]
    if facts.is_compiled_in and _list_kept_static(facts):
        return [("size-with-a-parameter", _dynamic_source_settings(facts)), "size-in-buckets"]
    if facts.is_compiled_in:
        return ["int-that-is-needed", "size-in-buckets"]
    is_known = bool(facts.dynamic_sources or facts.siblings or facts.called_at)
    settings = _dynamic_settings(dimensions, facts) if is_known or facts.is_static else ()
    settings = settings or (ALL_DYNAMIC,)
    several = len({source for source, _ in dimensions}) > 1
    return [
        ("size-of-several-inputs" if several else "size-of-an-input", settings),
        "size-in-buckets",
    ]


def _list_kept_static(facts: RecompileFacts) -> list[str]:
    """List inputs with sizes that differed and that torch never made dynamic, as it did others."""
    known = {parse_dynamic_source(entry) for entry in facts.dynamic_sources} - {None}
    kept = (source for source, dim in facts.sizes if known and (source, dim) not in known)
    return list(dict.fromkeys(kept))


def _is_size_looped(facts: RecompileFacts) -> bool:
    """Return whether a loop over the size is unrolled, even if the size is marked dynamic."""
    sources = {source for source in (facts.source, *facts.siblings) if source}
    sizes: list[tuple[str, int | None]] = [size for size in facts.sizes if size[0] in sources]
    return any(
        looped == dim or (facts.is_compiled_in and looped < 0)
        for source, dim in sizes or [(source, facts.dim) for source in sources]
        for looped in list_looped_dims(facts.lines, name_source(source))
    )


def _choose_for_shape(facts: RecompileFacts) -> Chosen:
    reason = facts.reason
    if facts.symbol == "dimension marks" or "_dynamo_" in reason or "_has_dynamo" in reason:
        return ["marks-late"]
    if "storage_offset" in reason:
        return ["offset"]
    if _ZERO_OR_ONE.search(reason):
        return ["size-zero-or-one", "size-unbacked"] if _SIZE.search(reason) else ["size-compared"]
    if "Mod(" in reason or "%" in reason:
        return ["size-multiple", "size-compared"]
    equal = "==" in reason or reason.startswith("Eq(")
    compared = "==" in (facts.source_line or "") or re.search(
        r"(?:\.shape\b|\.size\().*==", "\n".join(facts.lines)
    )
    if (
        equal
        and len(_SIZE.findall(reason)) == 2
        and not re.search(r"[*+/]", reason)
        and not compared
    ):
        return ["sizes-equal"]
    return ["size-compared"]


def _needs_value(facts: RecompileFacts) -> bool:
    return _is_compiled_in(facts) or _is_in_loop_or_branch(facts)


def _is_compiled_in(facts: RecompileFacts) -> bool:
    """Return whether the number's value is compiled in. Otherwise the number is already dynamic."""
    return facts.recompile_count > 1 and not facts.is_static


def _is_in_loop_or_branch(facts: RecompileFacts) -> bool:
    if not _is_written_in(facts, _list_decided, _LOOP_OR_BRANCH):
        return False
    uses = _list_uses(facts, facts.source)  # compared with a tensor, it gives a tensor
    return not uses or not uses <= _OF_TENSORS


def _is_negative(facts: RecompileFacts) -> bool:
    """Return whether a position counts from the end, which `index_select` does not accept."""
    return any(value.startswith("-") for value in facts.values)


def _is_position(facts: RecompileFacts) -> bool:
    return (
        not _is_negative(facts)
        and not _is_in_loop_or_branch(facts)
        and _is_written_in(facts, _list_positions, _POSITION)
    )


def _is_written_in(
    facts: RecompileFacts,
    list_parts: Callable[[ast.AST, Statement], Sequence[ast.AST]],
    pattern: str,
) -> bool:
    name, line = name_source(facts.source), facts.source_line or ""
    statement = parse_statement(line)
    if statement is None:
        return bool(re.search(pattern.format(name=re.escape(name)), line))
    parts = (part for node in statement.nodes() for part in list_parts(node, statement))
    return any(
        isinstance(inner, ast.Name | ast.Attribute | ast.Subscript) and ast.unparse(inner) == name
        for part in parts
        for inner in ast.walk(part)
    )


def _list_positions(node: ast.AST, statement: Statement) -> Sequence[ast.AST]:
    if not isinstance(node, ast.Subscript) or not isinstance(node.slice, ast.Tuple):
        return []
    if _is_called(node, statement):
        return []
    return [part for part in node.slice.elts if not isinstance(part, ast.Slice)]


def _list_decided(node: ast.AST, statement: Statement) -> Sequence[ast.AST]:
    if isinstance(node, ast.If | ast.While | ast.IfExp | ast.Assert):
        return [node.test]
    if isinstance(node, ast.comprehension):
        return node.ifs
    if isinstance(node, ast.Match):
        return [node.subject]
    if isinstance(node, ast.Compare):
        return [node]
    if isinstance(node, ast.Call):
        return node.args if dotted_name(node.func) == "range" else []
    if isinstance(node, ast.Subscript) and _is_called(node, statement):
        return [node.slice]
    return []


def _list_subscripts(node: ast.AST, _statement: Statement) -> Sequence[ast.AST]:
    if not isinstance(node, ast.Subscript) or isinstance(node.slice, ast.Tuple | ast.Slice):
        return []
    return [node.slice]


def _list_looked_up(node: ast.AST, _statement: Statement) -> Sequence[ast.AST]:
    """List expressions used as an attribute name or a dictionary key."""
    if isinstance(node, ast.Call):
        last = dotted_name(node.func).rsplit(".", 1)[-1]
        return node.args if last in ("getattr", "get") else []
    return [node.slice] if isinstance(node, ast.Subscript) else []


def _list_split(node: ast.AST, _statement: Statement) -> Sequence[ast.AST]:
    if isinstance(node, ast.Call) and re.search(r"\bsplit\w*$", ast.unparse(node.func)):
        return [*node.args, *node.keywords]
    return []


def _is_called(node: ast.Subscript, statement: Statement) -> bool:
    called = statement.parents.get(node)
    return isinstance(called, ast.Call) and called.func is node


def _is_subscript(facts: RecompileFacts) -> bool:
    return (
        not _is_negative(facts)
        and not _is_in_loop_or_branch(facts)
        and _is_written_in(facts, _list_subscripts, _SUBSCRIPT)
    )


def _choose_for_int(facts: RecompileFacts) -> Chosen:
    if _is_position(facts):
        return ["int-that-is-a-position"]
    if _is_subscript(facts):
        if _needs_value(facts):  # a tensor's subscript is dynamic from its second value on
            return ["int-that-picks-from-a-list", "variants-that-stay"]
        return [
            ("int-that-subscripts-a-tensor", _dynamic_source_settings(facts)),
            "int-that-picks-from-a-list",
        ]
    uses = _list_uses(facts, facts.source)
    if _is_looped(facts) or (_is_compiled_in(facts) and "branch" in uses):
        return ["int-that-the-code-needs", "variants-that-stay"]
    if _is_compiled_in(facts) or "fixed" in uses:
        return ["int-that-is-needed", "variants-that-stay"]
    return [*_suggest_dynamic_number(facts), "int"]


def _list_uses(facts: RecompileFacts, source: str | None) -> set[Use]:
    return list_readings(facts.lines, name_source(source))


def _is_looped(facts: RecompileFacts) -> bool:
    return _is_in_loop_or_branch(facts) or "loop" in _list_uses(facts, facts.source)


def _suggest_dynamic_number(facts: RecompileFacts) -> Chosen:
    settings = _dynamic_source_settings(facts)
    return [("dynamic-number", settings)] if settings else []


def _choose_for_number(facts: RecompileFacts, as_tensor: str) -> Chosen:
    """Suggest a tensor instead of a number only if every use of the number accepts a tensor."""
    uses = [_list_uses(facts, source) for source in (facts.source, *facts.siblings)]
    if any("fixed" in known for known in uses):
        return ["int-that-is-needed"]
    can_be_tensor = all(known and known <= _OF_TENSORS for known in uses)
    return [*_suggest_dynamic_number(facts), *([as_tensor] * can_be_tensor)] or [
        "int-that-is-needed"
    ]


def _choose_for_needed_int(facts: RecompileFacts) -> Chosen:
    if _is_position(facts):
        return ["int-that-is-a-position"]
    if _is_subscript(facts):
        return [("int-that-subscripts-a-tensor", ()), "int-that-picks-from-a-list"]
    return ["int-that-the-code-needs"] if _is_looped(facts) else []


def _choose_for_float(facts: RecompileFacts) -> Chosen:
    if not _needs_value(facts):
        # A function that is called may read it by a name of its own: no use is seen then.
        uses = _list_uses(facts, facts.source)
        is_passed_on = facts.lines and (not uses or "unknown" in uses)
        return ["float-passed-on" if is_passed_on else "float"]
    branches = re.search(r"[<>]|[=!]=|\bif\b", facts.source_line or "")
    return [
        "float-with-a-branch" if branches else "float-that-the-code-needs",
        "variants-that-stay",
    ]


def _choose_for_other(facts: RecompileFacts) -> Chosen:
    if (facts.source or "").endswith(".training"):
        return ["training"]
    if re.search(r"\bNone\b|NoneType", f"{facts.reason} {' '.join(facts.values)}"):
        return _choose_for_none(facts)
    if re.search(r"== (?:True|False)|'bool'", facts.reason):
        return ["bool"]
    return _choose_for_string(facts)


def _choose_for_none(facts: RecompileFacts) -> Chosen:
    """Suggest replacing None in the caller if it is an argument, by a tensor if other calls pass
    one. A cache that is empty at first cannot be replaced.
    """
    is_argument = _KEYWORD.sub(r"\g<name>", facts.source or "").isidentifier()
    others = " ".join({*facts.values} - {"None"})
    is_tensor = not others or re.search(r"Tensor|Parameter", others)
    return ["none" if is_argument and is_tensor else "value-variants"]


def _choose_for_string(facts: RecompileFacts) -> Chosen:
    """Suggest keeping a string that selects code (compared, looked up, or one of few), and moving
    one that is only data to the caller.
    """
    statement, name = parse_statement(facts.source_line or ""), name_source(facts.source)
    match statement and statement.node:
        case ast.Assign(targets=[ast.Subscript(slice=key)]) if ast.unparse(key) == name:
            return ["text-to-store-by"]
    is_read = facts.source_line is not None and not _is_in_loop_or_branch(facts)
    is_read = is_read and not _is_written_in(facts, _list_looked_up, _LOOKED_UP)
    return ["text-in-caller" if is_read and len(facts.values) > 3 else "value-variants"]


_PRESENCE = {"missing", "present", "absent"}


def _choose_for_global(facts: RecompileFacts) -> Chosen:
    facts = replace(facts, values=tuple(v for v in facts.values if v not in _PRESENCE))
    expected = facts.values[0] if facts.values else ""
    if facts.values and {*facts.values} <= _BOOLS:
        return ["bool"]
    if _INT.fullmatch(expected) and (needed := _choose_for_needed_int(facts)):
        return needed
    if _INT.fullmatch(expected):
        return _choose_for_number(facts, "global-number")
    if _FLOAT.fullmatch(expected):  # dynamic from its second value on, unlike an integer
        return ["global-number" if _needs_value(facts) else "attribute-float"]
    return ["global-value"]


def _choose_for_attribute(facts: RecompileFacts) -> Chosen:
    source, expected = facts.source or "", facts.values[0] if facts.values else ""
    if source.endswith(".training"):
        return ["training"]
    if _RATE.fullmatch(source) and _is_step(facts):
        return ["optimizer-rate"]
    if facts.values and {*facts.values} <= _BOOLS:
        return ["bool"]
    if _PRESENCE & set(facts.values) or "hasattr" in facts.reason:
        return ["attribute-that-comes"]
    if _INT.fullmatch(expected):
        attribute, uses = source.rpartition(".")[2], _list_uses(facts, source)
        line = facts.source_line or ""
        is_counted = _COUNT.search(line) and attribute in line
        if _LAYER.search(attribute) and not is_counted and "loop" not in uses:
            is_tensor = uses and uses <= _OF_TENSORS  # else something may need it
            return [*(_suggest_dynamic_number(facts) if is_tensor else []), "layer-index"]
        if needed := _choose_for_needed_int(facts):
            return needed
        if is_counted:
            return _choose_for_number(facts, "counter")
        return _choose_for_number(facts, "module-int")
    if _FLOAT.fullmatch(expected) and not _needs_value(facts):
        return ["attribute-float"]
    return ["attribute-key" if _names_own_module(facts) else "attribute-value"]


def _names_own_module(facts: RecompileFacts) -> bool:
    """Return whether the value selects a module of `self` that the line calls."""
    name, statement = name_source(facts.source), parse_statement(facts.source_line or "")
    return statement is not None and any(
        isinstance(node, ast.Subscript)
        and _is_called(node, statement)
        and ast.unparse(node.slice) == name
        and ast.unparse(node.value).startswith("self.")
        for node in statement.nodes()
    )


def _is_cache(facts: RecompileFacts) -> bool:
    """Return whether the function looks up entries that it stores itself, as a cache does."""
    name, lines = re.escape(name_source(facts.source)), "\n".join(facts.lines)
    is_asked = re.search(rf"\bnot in {name}\b", lines)
    return bool(is_asked and re.search(rf"\b{name}\[[^\]]*\]\s*=", lines))


def _is_optimizer_state(facts: RecompileFacts) -> bool:
    return _is_step(facts) and bool(_OF_OPTIMIZER.match(facts.source or ""))


def _is_step(facts: RecompileFacts) -> bool:
    return (facts.function or "").endswith(".step")


def _choose_for_length(facts: RecompileFacts) -> Chosen:
    line = facts.source_line or ""
    if facts.source in ARGUMENTS and (facts.source == "kwargs" or facts.called_at):
        return ["other-arguments"]
    if _is_optimizer_state(facts):
        return ["optimizer-state"]
    if _is_cache(facts):
        return ["cache-in-caller"]
    if _MUTATION.search(line):
        text = f"{facts.source}\n" + "\n".join(facts.lines)
        is_in_hook = facts.is_in_hook or _OF_HOOK.search(text)
        if is_in_hook:
            return ["hook-that-stores"]
        read = list_container_reads(facts.lines, name_source(facts.source))
        if read:
            return ["list-that-is-joined" if read == {"joined"} else "list-that-is-read"]
        return ["list-that-grows"]
    is_dict = _OF_DICT.search(line) or " != " in facts.reason  # torch writes a dict's length so
    if is_dict:
        return ["dict-keys"]
    if _is_written_in(facts, _list_split, _SPLIT):
        return ["list-of-sizes"]
    name = name_source(facts.source)
    if re.search(rf"\bfor\b.*\bin\b.*\b{re.escape(name)}\b", "\n".join(facts.lines)):
        return ["list-that-is-looped"]
    # What is unpacked or read by position may not fit into one tensor.
    is_joined = list_container_reads(facts.lines, name) == {"joined"}
    return ["list-length" if is_joined else "list-that-is-read"]


def _choose_for_dict_keys(facts: RecompileFacts) -> Chosen:
    if facts.source == "kwargs":
        return ["other-arguments"]
    if _is_optimizer_state(facts):
        return ["optimizer-state"]
    return ["cache-in-caller" if _is_cache(facts) else "dict-keys"]


def _is_wrapper(facts: RecompileFacts) -> bool:
    return (facts.function or "").startswith(_WRAPPER[0]) or (facts.file or "").endswith(
        _WRAPPER[1]
    )


def _choose_for_identity(facts: RecompileFacts) -> Chosen:
    if _is_wrapper(facts):
        return ["shared-wrapper"]
    if facts.symbol == "same object" or re.search(r"\w\S* is \S*\w", facts.reason):
        return ["tensors-that-were-one"]
    if is_of_enum(facts.reason, "\n".join((facts.source_line or "", *facts.lines)), *facts.values):
        return ["value-variants"]
    return ["function-object"]


def _choose_for_rank(facts: RecompileFacts) -> Chosen:
    beside = {"dispatch_keys", "grad_mode", "tensor_dtype", "tensor_requires_grad"}
    return ["rank-and-more" if beside & facts.beside else "rank"]


def _choose_for_dtype(facts: RecompileFacts) -> Chosen:
    """Suggest converting in the caller, unless the function tests the dtype or integers would
    become floats.
    """
    asked = re.compile(_DTYPE.format(name=re.escape(name_source(facts.source))))
    is_asked = any(
        asked.search(ast.unparse(test))
        for function in list_functions(facts.lines)
        for node in ast.walk(function)
        if (test := getattr(node, "test", None))
    )
    are_floats = [bool(re.search(r"float|complex", value)) for value in facts.values]
    return ["dtype-variants" if is_asked or len({*are_floats}) > 1 else "dtype"]


def _choose_for_dispatch_keys(facts: RecompileFacts) -> Chosen:
    if "FuncTorch" in facts.reason:
        return ["functorch"]
    return ["inference-mode-variants" if "grad_mode" in facts.together else "inference-tensor"]


def _choose_for_requires_grad(facts: RecompileFacts) -> Chosen:
    if facts.is_without_gradients:
        return ["requires-grad"]
    is_of_parameter = _PARAMETER.search(f"{facts.reason} {facts.source}")
    return ["requires-grad-of-a-parameter" if is_of_parameter else "requires-grad-variants"]


def _choose_for_type(facts: RecompileFacts) -> Chosen:
    if _is_wrapper(facts):
        return ["shared-wrapper"]
    text = f"{facts.reason} {' '.join(facts.values)}"
    if re.search(r"\bNone(?:Type)?\b", text):
        return _choose_for_none(facts)
    if "function" in text.lower():
        return ["function-object"]
    are_numbers = facts.values and all(map(_NUMBER_OR_TENSOR.search, facts.values))
    return ["type" if are_numbers else "value-variants"]


_BY_CATEGORY: dict[str, Callable[[RecompileFacts], Chosen]] = {
    "tensor_size": _choose_for_size,
    "tensor_dtype": _choose_for_dtype,
    "tensor_rank": _choose_for_rank,
    "dict_keys": _choose_for_dict_keys,
    "dispatch_keys": _choose_for_dispatch_keys,
    "grad_mode": lambda facts: [  # autocast differs in the kind of tensors, too
        "inference-mode-variants"
        if "dispatch_keys" in facts.together and "autocast" not in facts.reason
        else "grad-mode"
    ],
    "tensor_requires_grad": _choose_for_requires_grad,
    "string_value": _choose_for_string,
    "symbolic_shape": _choose_for_shape,
    "unknown": lambda facts: [],
    "int_value": _choose_for_int,
    "float_value": _choose_for_float,
    "other_value": _choose_for_other,
    "global_value": _choose_for_global,
    "module_attribute": _choose_for_attribute,
    "container_length": _choose_for_length,
    "object_identity": _choose_for_identity,
    "type_change": _choose_for_type,
}


def _fill_title(title: str, facts: RecompileFacts) -> str:
    changed = _CHANGED.search(facts.reason)
    size = _SIZE_OF.match(facts.source or "")
    source, dim = (size["tensor"], int(size["dim"])) if size else (facts.source, facts.dim)
    siblings = () if facts.category == "tensor_size" else facts.siblings
    name = name_sources((source, *siblings)) if source else name_source(source)
    dimensions = _list_dimensions(replace(facts, source=source, dim=dim))
    expected = next(iter(_list_other_sizes(facts)), None) if facts.dim is not None else None
    passed = _list_passed(facts, dimensions)
    names = {
        "source": name,
        "value": name_dimensions(dimensions) if facts.category == "tensor_size" else name,
        "sources": name_sources(
            tuple(dict.fromkeys(source for source, _ in dimensions)) or (source,)
        ),
        "dimensions": name_dimensions(passed or dimensions or [(source, dim)]),
        "others": ""
        if facts.dynamic_sources or facts.siblings or facts.called_at
        else ", and of inputs that share its size,",
        "dim": "that differs" if dim is None else str(dim),
        "name": name.rpartition(".")[2],
        "symbol": facts.symbol or (changed[1] if changed else "global setting"),
        "expected": expected or name_source(facts.values[0] if facts.values else None, "the other"),
        "expression": facts.source or "the size",
        "item": _quote_appended(facts),
        "before": _name_place(facts, passed),
        "scheduled": _suggest_scheduler_in_caller(facts),
        "entries": _quote_entries(facts) or name,
        "kept": name_sources(_list_kept_static(facts) or (source,)),
    }
    # One pass: a source may itself hold braces.
    return _BLANK.sub(lambda blank: names[blank[1]], title)


def _quote_appended(facts: RecompileFacts) -> str:
    statement = parse_statement(facts.source_line or "")
    for call in statement.calls() if statement else ():
        if dotted_name(call.func) == f"{name_source(facts.source)}.append" and call.args:
            item = call.args[0]
            match item:
                # It breaks the graph, too.
                case ast.Call(func=ast.Attribute(value=tensor, attr="item")):
                    return f"Return `{ast.unparse(tensor)}`, and append `{ast.unparse(item)}`"
            return f"Return `{ast.unparse(item)}`, and append it"
    match statement and statement.node:
        case ast.Assign(targets=[ast.Subscript()], value=stored):
            return f"Return `{ast.unparse(stored)}`, and add it"
    return "Append"


def _suggest_scheduler_in_caller(facts: RecompileFacts) -> str:
    """Suggest moving a scheduler's step, compiled with the optimizer's, to the caller."""
    parsed = filter(None, map(parse_statement, facts.lines))
    names = dict.fromkeys(dotted_name(call.func) for made in parsed for call in made.calls())
    steps = [f"`{name}()`" for name in names if "sched" in name and name.endswith(".step")]
    return f". Call {join_names(steps)} in the caller" if steps else ""


def _name_place(facts: RecompileFacts, passed: Sequence[tuple[str, int]]) -> str:
    """Describe where to mark an input. Inputs of a library's function come from the user's call; an
    input that the call does not pass itself is described by its source.
    """
    if facts.called_at is None:
        return "before the first call"
    if passed:
        marks = [f"`torch._dynamo.mark_dynamic({name}, {dim})`" for name, dim in passed]
        return f"before the call at {facts.called_at}: {join_names(marks)}"
    setting = _dynamic_settings(_list_dimensions(facts), facts)
    name = f"`{setting[0]}`" if setting else _DYNAMIC_SOURCES.removesuffix(" = ")
    return f"with {name}, before the call at {facts.called_at}"


def _list_passed(
    facts: RecompileFacts, dimensions: Sequence[tuple[str | None, int | None]]
) -> list[tuple[str, int]]:
    """List the dimensions of a library's inputs by their names in the user's call, without
    duplicates; empty if the call does not pass all of them itself.
    """
    passed: dict[tuple[str, int], None] = {}
    for source, dim in dimensions if facts.called_at else ():
        name = _find_passed(facts, source or "")
        if name is None or dim is None:
            return []
        passed[name, dim] = None
    return list(passed)


def _find_passed(facts: RecompileFacts, source: str) -> str | None:
    """Return the expression that the user's call passes as a library function's argument."""
    statement = parse_statement(facts.call_code or "")
    match = _KEYWORD.fullmatch(source)  # a part of an argument need not be there before the call
    name = match["name"] if match else source
    for call in statement.calls() if statement and name.isidentifier() else ():
        for keyword in call.keywords:
            value = ast.unparse(keyword.value)
            if keyword.arg == name and isinstance(keyword.value, ast.Name | ast.Attribute):
                return value
            if keyword.arg is None:
                return f"{value}[{name!r}]"
    return None
