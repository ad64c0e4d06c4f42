"""Guards that C++ reports in prose: tensor properties, global state, lost objects.

Source: torch/csrc/dynamo/guards.cpp of 2.4 to 2.13 (strings of libtorch_python) and
torch/_dynamo/guards.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from compileboard.collectors.decode.guards.classification import GuardClassification

_TENSOR = re.compile(
    r"^tensor '(?P<source>.+?)' "
    r"(?P<what>(?:Tensor )?(?:requires_grad|dtype|device|dispatch key|rank|size|stride)\b.*)$",
    re.S,
)
_MISMATCH = re.compile(
    r"^(?:Tensor )?(?P<what>requires_grad|dtype|device(?: index)?|dispatch key "
    r"set|rank|size|stride) mismatch"
    r"(?: at index (?P<dim>\d{1,4}))?\.\s*[Ee]xpected(?: device index to be)?\s+(?P<expected>.*?)"
    r"(?:, actual (?P<actual>.*?))?(?P<parameter>\. Guard failed on a parameter, .*)?$",
    re.S,
)
_CATEGORY = {
    "requires_grad": "tensor_requires_grad",
    "dtype": "tensor_dtype",
    "device": "tensor_device",
    "device index": "tensor_device",
    "dispatch key set": "dispatch_keys",
    "rank": "tensor_rank",
    "size": "tensor_size",
    "stride": "tensor_stride",
}
# torch compares the dispatcher's keys first: another device shows there, not in the device's own
# message.
_DEVICES = frozenset(
    ("CPU", "CUDA", "HIP", "XLA", "MPS", "IPU", "XPU", "HPU", "VE", "Lazy", "MTIA", "MAIA", "Meta")
)
_TENSOR_TYPE = re.compile(
    r"^expected type of '(?P<source>.+?)' to be a tensor type,"
    r"\s*(?:but found a different type|(?:' ?)?but found (?P<actual>.*))?",
    re.S,
)
_STATE = re.compile(r"^GLOBAL_STATE changed:\s*(?P<what>.*)$", re.S)
_DUPLICATE = re.compile(
    r"^Duplicate tensors? found(?: where not expected!)?:?\s*(?P<what>.*)$", re.S
)
_MISSING = re.compile(
    r"^(?P<what>KeyError|IndexError|getattr failed|null type dict) on (?:source )?(?P<source>.+)$"
)
_ITEM = re.compile(r"^(?P<holder>.+)\[(?P<key>[^\[\]]+)\]$")
_NOT_WEAKREF = re.compile(
    r"^(?:Not a weakref obj|Weakref_GetRef failed|Not a weakref) (?P<source>.+)$"
)
_FREED = re.compile(r"^Cache line invalidated because (?P<source>.+?) got deallocated$")
_NOT_KIND = re.compile(
    r"^(?:Not a callable obj (?P<source>.+)|(?P<accessor>\w+): Not a function on (?P<other>.+))$"
)
_LENGTH = re.compile(r"^len\((?P<source>.+)\) != (?P<expected>\d+)$")
_MARKS = re.compile(
    r"_has_dynamo_dim_marking"
    r"|attr\(\(?(?P<source>[^,()]+), '_dynamo_\w+'"
    r"|(?P<holder>[^\s(]+)\._dynamo_(?:\w+_)?(?:indices|ids|bounds)\b"
    r"|\b_dynamo_(?:\w+_)?(?:indices|ids|bounds)\b"
)
_SHAPES = re.compile(r"^\"?Shape guard failed with values\b")
_GRAD = re.compile(r"^not a tensor - grad field is accessed (?P<source>.+)$")
_BACKEND = re.compile(
    (
        r"^BACKEND_MATCH failure: .*?(?:Cached backend: (?P<expected>.*?)\. New backend: "
        r"(?P<actual>.*?)\. If this|$)"
    ),
    re.S,
)

_MAXIMUM = 20_000  # characters


def classify_message(text: str) -> GuardClassification | None:
    for rule in _RULES:
        classification = rule(text)
        if classification is not None:
            return classification
    return None


def _tensor(text: str) -> GuardClassification | None:
    tensor = _TENSOR.match(text)
    match = _MISMATCH.match(tensor["what"]) if tensor else None
    if tensor is None or match is None:
        return None
    expected, actual = match["expected"].strip(), match["actual"]
    dim = int(match["dim"]) if match["dim"] else None
    if match["what"] == "requires_grad":
        # torch names the expected flag alone: requires_grad=0.
        expected = expected.removeprefix("requires_grad=")
        actual = actual or {"0": "1", "1": "0"}.get(expected)
    if match["what"] == "dispatch key set" and actual:
        was, now = _devices(expected), _devices(actual)
        if was and now and was != now:
            return GuardClassification(
                "tensor_device", tensor["source"], ", ".join(was), ", ".join(now)
            )
    return GuardClassification(
        _CATEGORY[match["what"]],
        tensor["source"],
        expected,
        actual.strip() if actual else None,
        dim=dim,
        symbol=str(dim) if dim is not None else None,
    )


def _devices(keys: str) -> list[str]:
    return sorted({key.lower() for key in re.findall(r"\w+", keys) if key in _DEVICES})


def _tensor_type(text: str) -> GuardClassification | None:
    match = _TENSOR_TYPE.match(text)
    return (
        GuardClassification("type_change", match["source"], "a tensor", match["actual"])
        if match
        else None
    )


def _global_state(text: str) -> GuardClassification | None:
    match = _STATE.match(text)
    if not match:
        return None
    names = match["what"].split()
    if not names:
        return GuardClassification("global_state")
    # torch lists every setting that changed, in a fixed order; the first names the cause.
    first, symbol = names[0], " ".join(sorted(names))
    if first == "grad_mode":
        return GuardClassification("grad_mode", symbol=symbol)
    if first.startswith("autocast"):
        return GuardClassification("autocast", symbol=symbol)
    if first.startswith("deterministic_algorithms"):
        return GuardClassification("deterministic", symbol=symbol)
    return GuardClassification("global_state", symbol=symbol)


def _duplicate(text: str) -> GuardClassification | None:
    match = _DUPLICATE.match(text)
    if not match:
        return None
    sources = re.findall(r"['\"]([^'\"]+)['\"]", match["what"])
    return GuardClassification("tensor_aliasing", ", ".join(sources) or None)


def _missing(text: str) -> GuardClassification | None:
    match = _MISSING.match(text)
    if not match:
        return None
    kinds = {"KeyError": "dict_keys", "IndexError": "container_length"}
    category, source = kinds.get(match["what"], "module_attribute"), match["source"].strip()
    item = _ITEM.match(source)
    if item and item["holder"] == "G":
        return GuardClassification("global_value", source, actual="missing")
    if item and category != "module_attribute":
        return GuardClassification(
            category, item["holder"], actual=f"{item['key']} missing", symbol=item["key"]
        )
    return GuardClassification(category, source, actual="missing")


def _lost(text: str) -> GuardClassification | None:
    if text.startswith(
        "___guarded_code.valid"
    ):  # up to 2.4: the flag that freeing an object clears
        return GuardClassification("invalidated")
    match = _FREED.match(text) or _NOT_WEAKREF.match(text)
    return GuardClassification("invalidated", match["source"].strip()) if match else None


def _other_kind(text: str) -> GuardClassification | None:
    match = _NOT_KIND.match(text)
    return (
        GuardClassification(
            "type_change", (match["source"] or match["other"]).strip(), "a function"
        )
        if match
        else None
    )


def _backend(text: str) -> GuardClassification | None:
    match = _BACKEND.match(text)
    return (
        GuardClassification("backend_mismatch", expected=match["expected"], actual=match["actual"])
        if match
        else None
    )


def _length(text: str) -> GuardClassification | None:
    match = _LENGTH.match(text)
    return (
        GuardClassification("container_length", match["source"], match["expected"])
        if match
        else None
    )


def _marks(text: str) -> GuardClassification | None:
    # mark_dynamic and its like were called on this tensor and not on the compiled one, or for other
    # dimensions. The search takes quadratic time in a text without spaces: no such message is that
    # long.
    match = _MARKS.search(text) if "_dynamo_" in text and len(text) < _MAXIMUM else None
    if not match:
        return None
    return GuardClassification(
        "symbolic_shape", match["source"] or match["holder"], symbol="dimension marks"
    )


def _shapes(text: str) -> GuardClassification | None:
    return (
        GuardClassification("symbolic_shape", symbol="compiled shape guard")
        if _SHAPES.match(text)
        else None
    )


def _grad(text: str) -> GuardClassification | None:
    match = _GRAD.match(text)
    return GuardClassification("type_change", match["source"], "a tensor") if match else None


_RULES: tuple[Callable[[str], GuardClassification | None], ...] = (
    _tensor,
    _tensor_type,
    _global_state,
    _duplicate,
    _missing,
    _lost,
    _other_kind,
    _backend,
    _length,
    _marks,
    _shapes,
    _grad,
)
