"""Labels of artifacts: torch's names, the language of a text, and the reason why a text is
missing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from compileboard.app.artifacts.text import CodeLines, highlight, indent_json, is_bytecode
from compileboard.app.core.format import format_bytes
from compileboard.app.core.labels import Label

GUARDS = ("dynamo_cpp_guards_str", "dynamo_guards")
DYNAMO_GRAPH = "dynamo_output_graph"
OUTPUT_CODE = "inductor_output_code"

# torch's name: its role in the provenance of generated code. torch 2.8 to 2.10 call the graph that
# code is generated from after_post_grad_graph, or inductor_post_grad_graph if it was cached.
PROVENANCE_NAMES = {
    OUTPUT_CODE: "code",
    "inductor_aot_wrapper_code": "code",
    "inductor_post_grad_graph": "post_grad",
    "after_post_grad_graph": "post_grad",
    "before_pre_grad_graph": "pre_grad",
    "inductor_pre_grad_graph": "pre_grad",
    DYNAMO_GRAPH: "pre_grad",
    "inductor_provenance_tracking_node_mappings": "mapping",
    "inductor_provenance_tracking_kernel_stack_traces": "stack_traces",
}

_GRAPH, _PYTHON, _JSON, _TEXT = "graph", "python", "json", "text"
_FX_CACHE, _AOT_CACHE = "FX graph cache", "AOTAutograd cache"

# torch's name: (language, description).
NAMES: dict[str, tuple[str, str]] = {
    DYNAMO_GRAPH: (_GRAPH, "the FX graph that dynamo captured of the function"),
    "dynamo_cpp_guards_str": (_TEXT, "guards of this compiled code, as a tree"),
    "dynamo_guards": (_JSON, "guards of this compiled code"),
    "dynamo_side_effects": (_TEXT, "side effects that are replayed after the compiled code"),
    "dynamo_error": (_TEXT, "the exception that the compile raised"),
    "before_pre_grad_graph": (_GRAPH, "the graph before inductor's pre-grad passes"),
    "after_pre_grad_graph": (_GRAPH, "the graph after inductor's pre-grad passes"),
    "inductor_pre_grad_graph": (_GRAPH, "the graph before inductor's pre-grad passes"),
    "aot_joint_graph": (
        _GRAPH,
        "forward and backward in one graph, before AOTAutograd splits them",
    ),
    "aot_forward_graph": (_GRAPH, "the forward graph that AOTAutograd split from the joint one"),
    "aot_backward_graph": (_GRAPH, "the backward graph that AOTAutograd split from the joint one"),
    "aot_inference_graph": (_GRAPH, "AOTAutograd's graph of a call without gradients"),
    "aot_forward_graph_fw_metadata": (
        _PYTHON,
        "AOTAutograd's metadata of the graph's inputs and outputs",
    ),
    "before_joint_graph": (_GRAPH, "the joint graph before inductor's passes on it"),
    "after_joint_graph": (_GRAPH, "the joint graph after inductor's passes on it"),
    "before_post_grad_graph": (_GRAPH, "the graph before inductor's passes on ATen operations"),
    "after_post_grad_graph": (_GRAPH, "the graph after inductor's passes on ATen operations"),
    "inductor_post_grad_graph": (_GRAPH, "the graph that inductor generates code from"),
    OUTPUT_CODE: (_PYTHON, "the code that inductor generated: the kernels and what calls them"),
    "inductor_aot_kernel_code": ("cpp", "the kernels that inductor compiled ahead of time"),
    "inductor_aot_wrapper_code": (
        "cpp",
        "the wrapper that calls inductor's kernels, compiled ahead of time",
    ),
    "fx_graph_runnable": (_PYTHON, "a standalone program that compiles this graph"),
    "triton_kernel_info": (
        _JSON,
        "the triton kernels that were compiled, and their launch parameters",
    ),
    "inductor_provenance_tracking_node_mappings": (
        _JSON,
        "which nodes of the graphs each kernel came from",
    ),
    "inductor_provenance_tracking_kernel_stack_traces": (
        _JSON,
        "which lines of the program each kernel came from",
    ),
    "fx_graph_cache_hit": (_JSON, f"{_FX_CACHE}: hit, with the parts of its key"),
    "fx_graph_cache_miss": (_JSON, f"{_FX_CACHE}: miss, with the parts of its key"),
    "fx_graph_cache_bypass": (_JSON, f"{_FX_CACHE}: bypass, with the reason"),
    "fx_graph_bundled_cache_hit": (_JSON, f"{_FX_CACHE}: found in AOTAutograd's entry"),
    "fx_graph_cache_hash": (_JSON, f"{_FX_CACHE}: the key and its parts"),
    "aotautograd_cache_hit": (_JSON, f"{_AOT_CACHE}: hit, with the parts of its key"),
    "aotautograd_cache_miss": (_JSON, f"{_AOT_CACHE}: miss, with the parts of its key"),
    "aotautograd_cache_bypass": (_JSON, f"{_AOT_CACHE}: bypass, with the reason"),
    "aotautograd_cache_hash": (_JSON, f"{_AOT_CACHE}: the key and its parts"),
    "torch._functorch.config": (_JSON, "AOTAutograd's configuration at the time of the compile"),
    "optimize_ddp_split_graph": (_GRAPH, "the graph that DDPOptimizer cut at its buckets, as one"),
    "optimize_ddp_split_child": (
        _GRAPH,
        "one piece of the graph that DDPOptimizer cut at its buckets",
    ),
    "compiled_autograd_graph": (_GRAPH, "the backward graph that compiled autograd captured"),
    "describe_tensor": (
        _JSON,
        "a tensor that torch made a fake one of: its shape, type and layout",
    ),
    "describe_storage": (_JSON, "the memory of a tensor that torch made a fake one of"),
    "describe_source": (_JSON, "where in the program such a tensor comes from"),
    "graph_dump": (_GRAPH, "a graph that the program asked torch to write"),
    "dump_file": (_PYTHON, "a source file that torch generated"),
    "link": (_TEXT, "an address that torch wrote"),
    "exported_program": (_GRAPH, "the program that torch.export made"),
    "missing_fake_kernel": (_JSON, "an operation that has no fake kernel, found by draft export"),
    "mismatched_fake_kernel": (_JSON, "an operation whose fake kernel disagrees with the real one"),
    "torch_version": (_TEXT, "the version of torch"),
}
_LONG_LINE = 200
# Quoted strings and empty brackets are skipped.
_MARK = re.compile(r"""'[^'\n]*'|"[^"\n]*"|\(\)|\[\]|\{\}|[(\[{]|[)\]}]|, """)
_OPEN, _CLOSE = ("(", "[", "{"), (")", "]", "}")
_BREAKS = (*_OPEN, *_CLOSE, ", ")
_BYTECODES = {
    "ORIGINAL": "bytecode of the code after a graph break, as dynamo got it",
    "MODIFIED": "bytecode of the code after a graph break, as dynamo made it",
}
UNKNOWN = "a record with a name that CompileBoard does not know"
_CPP = re.compile(r"^\s*(?:#include|#pragma|extern \"C\")")

STATES = {
    "kept": Label("kept", "good", "The text matches torch's checksum."),
    "none": Label("no text", "quiet", "torch writes no text with this record."),
    "left_out": Label("left out", "quiet", "Imported with --no-payloads. Import again without it."),
    "withheld": Label("withheld", "quiet", "The text has source code, and source is hidden."),
    "damaged": Label(
        "damaged", "bad", "The text does not match torch's checksum: the log is damaged."
    ),
    "too_large": Label("too large", "warn", "The text exceeds the size limit of a record."),
}


def describe_name(name: str) -> str:
    if is_bytecode(name):
        return _BYTECODES[name.rpartition("_")[0].rpartition("_")[2]]
    return NAMES[name][1] if name in NAMES else UNKNOWN


def describe_state(state: str, unreadable: str | None = None) -> Label:
    if unreadable:
        return Label(
            "not readable", "bad", f"The text was kept, and cannot be read back: {unreadable}."
        )
    return STATES.get(state, Label(state, "quiet", "This version does not know that state."))


def guess_language(name: str, text: str, encoding: str = "string") -> str:
    if _CPP.match(text):
        return "cpp"
    language = _TEXT if is_bytecode(name) else NAMES.get(name, ("", ""))[0]
    if encoding == "json" or language == _JSON or (text[:1] in "{[" and _is_json(text)):
        return _JSON
    if language:
        return language
    head = text[:4_000]
    if re.search(r"^\s*(?:class GraphModule|class <lambda>|# File: )", head, re.MULTILINE):
        return _GRAPH
    return _PYTHON if re.search(r"^(?:import |from \w|def |class )", head, re.MULTILINE) else _TEXT


def reformat(text: str, language: str) -> str:
    if language == _JSON:
        return indent_json(text)
    return (
        break_call(text)
        if language == _PYTHON and len(text) > _LONG_LINE and "\n" not in text.strip()
        else text
    )


def break_call(text: str, max_depth: int = 3) -> str:
    parts, depth, at = [], 0, 0
    for match in _MARK.finditer(text):
        mark = match.group()
        depth += mark in _OPEN
        if depth <= max_depth and mark in _BREAKS:
            inner = depth - (mark in _CLOSE)
            end = match.start() if mark in _CLOSE else match.end()
            parts.append(f"{text[at:end].rstrip(' ')}\n{'  ' * inner}")
            at = end
        depth -= mark in _CLOSE and depth > 0
    return "".join([*parts, text[at:]])


def list_metadata(metadata: Mapping[str, Any], max_count: int = 400) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    for name, value in metadata.items():
        if isinstance(value, dict) and value and len(value) <= max_count:
            pairs += [
                (f"{name} · {key}", _format_metadata(key, inner)) for key, inner in value.items()
            ]
        else:
            pairs.append((name, _format_metadata(name, value)))
    return pairs[:max_count]


def _format_metadata(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name == "size" and isinstance(value, int):
        return format_bytes(value)
    if isinstance(value, list) and all(isinstance(element, int | str) for element in value):
        return " × ".join(map(str, value)) if value else "none: a scalar"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


SHOWN_CHARS = 500_000  # ≈ 10,000 lines: the largest text of the recorded models has 421,000
SHOWN_LINES = 12_000
LAID_OUT_CHARS = 2_000_000  # longer JSON stays on one line


@dataclass(frozen=True)
class TextView:
    language: str
    lines: CodeLines
    remark: str


def view_text(name: str, text: str, encoding: str) -> TextView:
    language = guess_language(name, text[:SHOWN_CHARS], encoding)
    whole = reformat(text, language) if len(text) <= LAID_OUT_CHARS else text
    shown = whole
    if len(shown) > SHOWN_CHARS:
        head = shown[:SHOWN_CHARS]
        shown = head.rpartition("\n")[0] or head
    if shown.count("\n") > SHOWN_LINES:
        shown = "\n".join(shown.split("\n", SHOWN_LINES)[:SHOWN_LINES])
    remark = ""
    if len(shown) < len(whole):
        remark = (
            f"This is the beginning: {len(shown):,} of {len(whole):,} characters. The raw text "
            "has all of it."
        )
    return TextView(language, highlight(shown, language), remark)
