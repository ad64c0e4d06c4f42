"""Parse AOTAutograd's metadata of a graph: the repr of a dataclass, which is not evaluated."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TypeAlias, cast

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
Number: TypeAlias = "int | None"

ARTIFACT = "aot_forward_graph_fw_metadata"
# torch 2.13 logs the source of each wrapper that it generates, under these names; 2.11 does not.
WRAPPER_ARTIFACTS = {
    "runtime_wrapper_orchestration": "RuntimeWrapper",
    "mutation_epilogue": "RuntimeWrapper",
    "output_alias_wrapper": "RuntimeWrapper",
    "compiled_function_forward": "AOTDispatchAutograd",
    "subclass_wrapper": "AOTDispatchSubclassWrapper",
    "effect_tokens_wrapper": "EffectTokensWrapper",
    "functionalized_rng_wrapper": "FunctionalizedRngRuntimeWrapper",
    "dedup_wrapper": "AOTDedupeWrapper",
    "synthetic_base_wrapper": "AOTSyntheticBaseWrapper",
    "debug_assert_wrapper": "DebugAssertWrapper",
}
# Pieces are compiled one after the other, by outputs without values
DDP_SPLIT = "optimize_ddp_split_graph"
MAX_DEPTH = 48  # the deepest real one is 9; deeper values stay text
# Reads each character once: no alternative can match again what another one gave up.
_TOKEN = re.compile(
    r"\s+"
    # Half of all fields: one step instead of two
    r"|(?P<pair>[A-Za-z_]\w*=(?:True|False|None|\d{1,18})(?=\s*[,)]))"
    r"|(?P<key>[A-Za-z_]\w*=(?!=))"
    r"|(?P<call>[A-Za-z_][\w.]*\()"
    r"|(?P<open>[\[({])"
    r"|(?P<close>[\])}])"
    r"|(?P<comma>,)"
    r"|(?P<colon>:)"
    r"|(?P<string>'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\")"
    r"|(?P<angle><class '[^'\n]*'>|<\w[^<>()\[\]{},]*>)"
    r"|(?P<atom>[-+]?[\w.]+)"
    r"|(?P<stray>['\"])"
    r"|(?P<other>[^\w\s\[\](){},:'\"<]+|.)"
)
_CLOSING = {"(": ")", "[": "]", "{": "}"}
_CONSTANTS: dict[str, Json] = {"True": True, "False": False, "None": None}
_NUMBER = re.compile(r"[-+]?\d{1,18}")
_FLOAT = re.compile(r"[-+]?(?:\d{1,17}\.\d{0,17}|\.\d{1,17})(?:[eE][-+]?\d{1,2})?")
_ESCAPE = re.compile(r"\\([\\'\"nrt])")
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t"}


class _Frame:
    __slots__ = (
        "begin",
        "end",
        "fields",
        "items",
        "key",
        "kind",
        "name",
        "part_count",
        "start",
        "strings",
        "value",
    )

    def __init__(self, kind: str, name: str | None, begin: int, start: int) -> None:
        self.kind, self.name, self.begin = kind, name, begin
        self.items: list[Json] = []
        self.fields: dict[str, Json] = {}
        self.key: str | None = None
        self.start = self.end = start  # Positions of the element being read.
        self.part_count = 0
        self.strings: list[str] = []
        self.value: Json = None

    def add(self, value: Json, start: int, end: int) -> None:
        if not self.part_count:
            self.start, self.value = start, value
        self.part_count += 1
        self.end = end

    def finish_element(self, text: str) -> None:
        if not self.part_count and self.key is None:
            return
        value = self.value if self.part_count else None
        if self.part_count > 1:  # a long string is printed as several adjacent ones
            whole = len(self.strings) == self.part_count
            value = (
                "".join(self.strings) if whole else " ".join(text[self.start : self.end].split())
            )
        if self.key is None:
            self.items.append(value)
        else:
            self.fields[self.key] = value
        self.key, self.part_count = None, 0
        if self.strings:
            self.strings = []

    def finish(self) -> Json:
        if self.name is None:
            if self.kind != "{" or not self.fields:
                return self.items if self.items or self.kind != "{" else {}
            return self.fields
        if (
            self.name in ("set", "frozenset", "torch.Size")
            and not self.fields
            and len(self.items) <= 1
        ):
            only = self.items[0] if self.items else []
            return only if isinstance(only, list) else [only]
        made: dict[str, Json] = {"_class": self.name}
        if self.items:
            made["_args"] = self.items
        made.update(self.fields)
        return made


def parse_metadata(text: str) -> dict[str, Json] | None:
    """Parse the repr of a dataclass; None if it is truncated, unbalanced or something else.

    An object is a dict with its name as `_class`; a set or tuple is a list; a class or enum member
    is its dotted name; anything else, such as a symbolic expression, stays text.

    Source: torchgen/utils.py dataclass_repr
    """
    if not isinstance(text, str):
        return None
    element = _parse_value(text)
    return element if isinstance(element, dict) and "_class" in element else None


def _parse_value(text: str) -> Json:
    root = _Frame("", None, 0, 0)
    stack, too_deep = [root], list[str]()
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup
        if kind is None:
            continue
        token, start = match.group(), match.start()
        top = stack[-1]
        if kind == "stray":
            return None  # an unterminated string: brackets after it cannot be trusted
        if too_deep:
            if kind in ("open", "call"):
                too_deep.append(_CLOSING[token[-1]])
            elif kind == "close":
                if token != too_deep.pop():
                    return None
                top.add(token, start, match.end())
        elif kind == "pair" and top.name is not None and not top.part_count:
            name, _, value = token.partition("=")
            top.fields[name] = _CONSTANTS[value] if value in _CONSTANTS else int(value)
        elif kind in ("open", "call"):
            if len(stack) > MAX_DEPTH:
                too_deep.append(_CLOSING[token[-1]])
                top.add(token, start, match.end())
            else:
                stack.append(
                    _Frame(token[-1], token[:-1] if kind == "call" else None, start, match.end())
                )
        elif kind == "close":
            if len(stack) == 1 or _CLOSING[top.kind] != token:
                return None
            top.finish_element(text)
            stack.pop()
            stack[-1].add(top.finish(), top.begin, match.end())
        elif kind == "comma":
            top.finish_element(text)
        elif kind == "colon" and top.kind == "{" and top.key is None and top.part_count:
            top.key = (
                top.value
                if isinstance(top.value, str)
                else " ".join(text[top.start : top.end].split())
            )
            top.part_count, top.value, top.strings = 0, None, []
        elif kind == "key" and top.name is not None and not top.part_count:
            top.key = token[:-1]
        else:
            atom = _parse_atom(kind, token)
            top.add(atom, start, match.end())
            if kind == "string":
                top.strings.append(str(atom))
    whole = len(stack) == 1 and root.part_count == 1 and not root.items and not too_deep
    return root.value if whole else None


def _parse_atom(kind: str, token: str) -> Json:
    if kind == "string":
        return _ESCAPE.sub(lambda match: _ESCAPED.get(match[1], match[1]), token[1:-1])
    if kind == "angle":
        if token.startswith("<class '"):
            return token[8:-2]
        head, colon, _value = token[1:-1].partition(": ")
        return head if colon and " " not in head else token
    if kind != "atom" or token in _CONSTANTS:
        return _CONSTANTS.get(token, token)
    if _NUMBER.fullmatch(token):
        return int(token)
    return float(token) if _FLOAT.fullmatch(token) else token


def summarize(meta: dict[str, Json]) -> dict[str, Json]:
    """Return the stored facts of a graph; unknown values are None.

    Input indices are those after merging of duplicate arguments and views. `rng_functionalized` is
    None, because no version's text has it.

    Source: torch/_functorch/_aot_autograd/schemas.py ViewAndMutationMeta
    """
    inputs, outputs = _get_objects(meta.get("input_info")), _get_objects(meta.get("output_info"))
    mutated = (
        None
        if inputs is None
        else [
            _summarize_mutation(i, input_) for i, input_ in enumerate(inputs) if _is_mutated(input_)
        ]
    )
    merged, synthetic, deduplicated = _find_merges(meta, mutated)
    return {
        "input_count": None if inputs is None else len(inputs),
        "user_output_count": None if outputs is None else len(outputs),
        "output_count": _output_count(
            mutated, outputs, _get_number(meta, "num_intermediate_bases")
        ),
        "trained": _is_trained(meta),
        "inputs_mutated": cast("Json", mutated),
        "outputs": None
        if outputs is None
        else [
            _summarize_output(i, output) for i, output in enumerate(outputs) if _is_special(output)
        ],
        "intermediate_base_count": _get_number(meta, "num_intermediate_bases"),
        "arguments_merged": merged,
        "synthetic_base": synthetic,
        "deduplicated": deduplicated,
        "subclass_input_count": _subclass_count(meta, "subclass_inp_meta"),
        "subclass_output_count": _subclass_count(meta, "subclass_fw_graph_out_meta"),
        "async_collective_input_count": _get_length(meta, "act_input_indices"),
        "rng_functionalized": _get_flag(meta, "is_rng_op_functionalized"),
        "graphsafe_rng_state_count": _get_number(meta, "num_graphsafe_rng_states"),
        "effect_token_count": _get_length(meta, "tokens"),
        "backward_effect_token_count": _get_number(meta, "num_backward_tokens"),
        "traced_tangent_count": _tangent_count(meta),
        "static_input_count": _get_length(
            meta,
            "static_input_indices"
            if "static_input_indices" in meta
            else "static_parameter_indices",
        ),
        "keep_input_mutations": _get_flag(meta, "keep_input_mutations"),
        "grad_enabled_after": _get_flag(meta, "grad_enabled_mutation"),
        "deterministic": _get_flag(meta, "deterministic"),
        "dynamic_output_indices": None
        if outputs is None
        else [
            i
            for i, output in enumerate(outputs)
            if isinstance(output.get("dynamic_dims"), list) and output["dynamic_dims"]
        ],
        "saved_symint_count": _get_number(meta, "num_symints_saved_for_bw"),
        "saved_unchecked_tensor_count": _get_number(meta, "num_tensors_saved_with_no_vc_check"),
        "saved_opaque_count": _get_number(meta, "num_opaque_objects_saved_for_bw"),
        "donated_buffer_count": _get_length(meta, "bw_donated_idxs"),
        "donated_buffer_indices": _get_numbers(meta, "bw_donated_idxs"),
        "backward_mutation_count": _get_length(
            meta, "indices_of_inputs_that_requires_grad_with_mutations_in_bw"
        ),
    }


def add_wrappers(summary: dict[str, Json], artifacts: Iterable[str]) -> dict[str, Json]:
    """Fill in facts missing in the metadata from the names of the compile's other artifacts.

    Only for a compile with one graph, because torch does not say which graph a wrapper belongs to.

    Source: torch/_functorch/_aot_autograd/subclass_codegen.py _compile_and_exec_source (2.13)
    """
    names = set(artifacts)
    if "runtime_wrapper_orchestration" not in names:
        return summary  # this torch does not log wrappers, so a missing one means nothing
    return summary | {
        "synthetic_base": "synthetic_base_wrapper" in names,
        "deduplicated": "dedup_wrapper" in names,
        "arguments_merged": not names.isdisjoint(("synthetic_base_wrapper", "dedup_wrapper")),
        "rng_functionalized": "functionalized_rng_wrapper" in names,
        "requires_grad_asserted": "debug_assert_wrapper" in names,
    }


def _is_mutated(info: dict[str, Json]) -> bool:
    flags = (
        "mutates_data",
        "mutates_metadata",
        "mutates_storage_metadata",
        "mutation_inductor_storage_resize",
    )
    return any(info.get(flag) is True for flag in flags)


def _summarize_mutation(index: int, info: dict[str, Json]) -> dict[str, Json]:
    return {
        "index": index,
        "data": _get_flag(info, "mutates_data"),
        "metadata": _get_flag(info, "mutates_metadata"),
        "storage": _get_flag(info, "mutates_storage_metadata"),
        "storage_resized": _get_flag(info, "mutation_inductor_storage_resize"),
        "hidden_from_autograd": _get_flag(info, "mutations_hidden_from_autograd"),
        "under_no_grad": _get_flag(info, "mutations_under_no_grad_or_inference_mode"),
        "keep_input_mutations": _get_flag(info, "keep_input_mutations"),
        "requires_grad": _get_flag(info, "requires_grad"),
        "is_leaf": _get_flag(info, "is_leaf"),
        "applied_in": _applied_in(info),
    }


def _applied_in(info: dict[str, Json]) -> str | None:
    """Return whether the graph or the wrapper after it writes the input, by the rule of 2.4 to
    2.13.

    Source: torch/_functorch/_aot_autograd/functional_utils.py _check_if_mutation_can_be_in_graph
    """
    keep, metadata = _get_flag(info, "keep_input_mutations"), _get_flag(info, "mutates_metadata")
    quiet = [
        _get_flag(info, f"mutations_{how}")
        for how in ("hidden_from_autograd", "under_no_grad_or_inference_mode")
    ]
    written = [
        _get_flag(info, name)
        for name in ("mutates_data", "mutates_storage_metadata", "mutation_inductor_storage_resize")
    ]
    if keep is False or not any(mutation is not False for mutation in written):
        return "epilogue"
    requires_grad = _get_flag(info, "requires_grad")
    if None in (keep, metadata, requires_grad, *quiet, *written):
        return None
    return "graph" if any(quiet) or not (metadata or requires_grad) else "epilogue"


def _is_special(info: dict[str, Json]) -> bool:
    return _output_type(info) != "non_alias"


def _output_type(info: dict[str, Json]) -> str | None:
    kind = info.get("output_type")
    return kind.rpartition(".")[2] if isinstance(kind, str) else None


def _summarize_output(index: int, info: dict[str, Json]) -> dict[str, Json]:
    sequence = info.get("view_meta_sequence")
    return {
        "index": index,
        "output_type": _output_type(info),
        "base_index": _get_number(info, "base_idx"),
        "requires_grad": _get_flag(info, "requires_grad"),
        "views": sequence.get("_args") if isinstance(sequence, dict) else None,
    }


def _output_count(
    mutated: list[dict[str, Json]] | None, outputs: list[dict[str, Json]] | None, bases: Number
) -> Number:
    if (
        mutated is None
        or outputs is None
        or bases is None
        or any(mutation["applied_in"] is None for mutation in mutated)
    ):
        return None
    return sum(mutation["applied_in"] == "epilogue" for mutation in mutated) + len(outputs) + bases


def _is_trained(meta: dict[str, Json]) -> bool | None:
    """Return whether there is a backward, None if unknown. `is_train` was removed after 2.11; in
    later versions only graphs with a backward count saved symints.
    """
    if "is_train" in meta:
        return _get_flag(meta, "is_train")
    if "num_symints_saved_for_bw" not in meta:
        return None
    return _get_number(meta, "num_symints_saved_for_bw") is not None


def _find_merges(
    meta: dict[str, Json], mutated: list[dict[str, Json]] | None
) -> tuple[bool | None, bool | None, bool | None]:
    """Return whether arguments were merged at all, into synthetic bases, and as duplicates.

    The text has no field for it. But merging leaves `subclass_inp_meta` empty, merges bases only
    where data is mutated, and names a base in the tangent of a mutated input.

    Source: torch/_functorch/_aot_autograd/input_output_analysis.py
    """
    metas, inputs = meta.get("subclass_inp_meta"), meta.get("input_info")
    if not isinstance(metas, list) or not isinstance(inputs, list) or mutated is None:
        return None, None, None
    if metas or not inputs:
        return False, False, False
    written = sum(mutation["data"] is not False for mutation in mutated)
    named = [
        _mutated_input(object_) for object_ in _get_objects(meta.get("traced_tangents_descs")) or []
    ]
    named = [name for name in named if name is not None]
    if any(name in ("SyntheticBaseAOTInput", "ViewBaseAOTInput") for name in named):
        return True, True, None
    return (True, False, True) if len(named) == written else (True, None, None)


def _mutated_input(description: dict[str, Json]) -> str | None:
    output = description.get("output")
    source = output.get("mutated_input") if isinstance(output, dict) else None
    return str(source.get("_class")) if isinstance(source, dict) else None


def _subclass_count(meta: dict[str, Json], field: str) -> Number:
    values = meta.get(field)
    if not isinstance(values, list):
        return None
    return sum(
        isinstance(value, dict) and value.get("_class") == "SubclassCreationMeta"
        for value in values
    )


def _tangent_count(meta: dict[str, Json]) -> Number:
    count, metas = _get_length(meta, "traced_tangents"), _get_length(meta, "traced_tangent_metas")
    return metas if not count and metas is not None else count


def _get_objects(value: Json) -> list[dict[str, Json]] | None:
    return (
        [element if isinstance(element, dict) else {} for element in value]
        if isinstance(value, list)
        else None
    )


def _get_flag(values: dict[str, Json], name: str) -> bool | None:
    value = values.get(name)
    return value if isinstance(value, bool) else None


def _get_number(values: dict[str, Json], name: str) -> Number:
    value = values.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _get_numbers(values: dict[str, Json], name: str) -> Json:
    value = values.get(name)
    return (
        value
        if isinstance(value, list) and all(type(element) is int for element in value)
        else None
    )


def _get_length(values: dict[str, Json], name: str) -> Number:
    value = values.get(name)
    return len(value) if isinstance(value, list | dict) else None
