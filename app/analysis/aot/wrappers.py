"""The work of AOTAutograd's wrappers around a compiled graph at each call, explained, with its
cost.

Source: torch/_functorch/_aot_autograd/runtime_wrappers.py, graph_compile.py (2.6 to 2.13)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from compileboard.app.analysis.aot.labels import (
    ALIASES,
    AUTOGRAD,
    BASES,
    DEBUG_ASSERT,
    DUPLICATES,
    EAGER_BACKWARD,
    FAKIFIED,
    LAZY_BACKWARD,
    MERGED,
    ORDINARY,
    PLAIN,
    RUNTIME,
    SAME,
    SYNTHETIC_BASE,
    WrapperCost,
    describe_donated,
    describe_mutation,
    describe_tangents,
)

# Without one of these nobody can say that a graph has nothing but the plain wrapper.
DECISIVE = (
    "arguments_merged",
    "inputs_mutated",
    "outputs",
    "subclass_input_count",
    "subclass_output_count",
    "effect_token_count",
    "trained",
)
_MOST_RANGES = 6

Summary = Mapping[str, Any]


def explain_graph(summary: Summary) -> list[WrapperCost]:
    """List what the compiled function does besides its graph, from the outermost wrapper to the
    innermost.
    """
    costs = [
        *_merged(summary),
        *_mutations(summary),
        *_outputs(summary),
        *_runtime(summary),
        *_randomness(summary),
        *_subclasses(summary),
        *_effects(summary),
    ]
    costs += _autograd(summary)
    costs += [DEBUG_ASSERT] * (summary.get("requires_grad_asserted") is True)
    costs += [FAKIFIED] * (summary.get("first_call_fakified") is True)
    if not costs and all(summary.get(name) is not None for name in DECISIVE):
        costs.append(PLAIN)
    return costs


def list_unknown(summary: Summary) -> list[str]:
    names = {
        "arguments_merged": "whether arguments were merged before the graph",
        "inputs_mutated": "which inputs are written to",
        "outputs": "which outputs alias something",
        "subclass_input_count": "whether inputs are tensor subclasses",
        "subclass_output_count": "whether outputs are tensor subclasses",
        "effect_token_count": "whether the graph has ordered side effects",
        "trained": "whether there is a backward",
        "rng_functionalized": "whether random numbers are functionalised (torch._functorch.config says it)",
    }
    unknown = [
        f"Not in the metadata: {text}." for name, text in names.items() if summary.get(name) is None
    ]
    if summary.get("synthetic_base") and summary.get("deduplicated") is None:
        unknown.append("Not in the metadata: whether duplicated arguments were merged as well.")
    return unknown


def name_numbers(noun: str, numbers: Iterable[int]) -> str:
    """Format with ranges: `input 0`, `inputs 0–3 and 7`."""
    ordered = sorted(set(numbers))
    ranges: list[list[int]] = []
    for number in ordered:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    texts = [f"{low}" if low == high else f"{low}–{high}" for low, high in ranges[:_MOST_RANGES]]
    if left := sum(high - low + 1 for low, high in ranges[_MOST_RANGES:]):
        texts.append(f"{left} more")
    text = texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"
    return f"{noun}{'' if len(ordered) == 1 else 's'} {text}"


def _merged(summary: Summary) -> list[WrapperCost]:
    if not summary.get("arguments_merged"):
        return []
    known = [SYNTHETIC_BASE] * (summary.get("synthetic_base") is True)
    known += [DUPLICATES] * (summary.get("deduplicated") is True)
    return known or [MERGED]


def _mutations(summary: Summary) -> list[WrapperCost]:
    groups: dict[tuple[str, str], list[int]] = {}
    for mutation in summary.get("inputs_mutated") or ():
        groups.setdefault(_mutation_kind(mutation), []).append(mutation["index"])
    return [
        describe_mutation(*kind, name_numbers("input", indices)) for kind, indices in groups.items()
    ]


def _mutation_kind(mutation: Mapping[str, Any]) -> tuple[str, str]:
    if mutation.get("applied_in") not in ("graph", "epilogue"):
        return "unknown", ""
    if mutation["applied_in"] == "graph":
        return "graph", ""
    if mutation.get("storage"):
        return "storage", ""
    if not mutation.get("data"):
        return ("metadata", "") if mutation.get("metadata") else ("unknown", "")
    if mutation.get("keep_input_mutations") is False:
        return "copy", "backend"
    return "copy", "metadata" if mutation.get("metadata") else "autograd"


def _outputs(summary: Summary) -> list[WrapperCost]:
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for output in summary.get("outputs") or ():
        kind = output.get("output_type")
        if kind not in ORDINARY:
            groups.setdefault(SAME.get(kind, kind) or "", []).append(output)
    return [_alias(kind, items, summary) for kind, items in groups.items()]


def _alias(kind: str, items: Sequence[Mapping[str, Any]], summary: Summary) -> WrapperCost:
    outputs = name_numbers("output", [alias["index"] for alias in items])
    if kind not in ALIASES:
        kinds = f"as {kind}, a kind that is not known here" if kind else "of an unrecorded kind"
        return WrapperCost(
            f"Aliases: {outputs}",
            f"Torch lists {outputs} {kinds}.",
            "Unknown.",
            "Unknown.",
            RUNTIME,
        )
    title, what, cost, avoid, wrapper = ALIASES[kind]
    bases = [alias["base_index"] for alias in items if alias.get("base_index") is not None]
    noun = BASES.get(kind)
    base = _intermediates(summary)
    if noun is not None:
        base = name_numbers(noun, bases) if bases else f"an {noun}"
    what = what.format(outputs, base)
    if (
        kind == "alias_of_input"
        and summary.get("arguments_merged")
        and any(alias.get("views") is None for alias in items)
    ):
        # AOTSyntheticBaseWrapper takes such outputs for itself and gives the caller's inputs their
        # new shape by them.
        what += (
            " Some of them may be merged inputs whose sizes or strides the function changed, "
            "not results."
        )
    return WrapperCost(title.format(outputs), what, cost, avoid, wrapper)


def _intermediates(summary: Summary) -> str:
    count = summary.get("intermediate_base_count")
    return f"{count} intermediate results" if count and count > 1 else "an intermediate result"


def _runtime(summary: Summary) -> list[WrapperCost]:
    costs = []
    if (mode := summary.get("grad_enabled_after")) is not None:
        costs.append(
            WrapperCost(
                title=f"Gradient mode is turned {'on' if mode else 'off'} at the end",
                what=(
                    "The function leaves torch's gradient mode other than it found it, and the "
                    "wrapper does the same."
                ),
                cost=(
                    "One call that sets a flag. What runs after it builds gradients, or none, "
                    "as the flag says."
                ),
                avoid="Change the mode in a with block that ends inside the function.",
                wrapper=RUNTIME,
            )
        )
    if dynamic := summary.get("dynamic_output_indices"):
        outputs = name_numbers("output", dynamic)
        costs.append(
            WrapperCost(
                title=f"Marked as dynamic: {outputs}",
                what=f"Sizes of {outputs} are symbolic: the wrapper marks them, so that a next "
                "compiled graph takes"
                " them as dynamic at once instead of recompiling.",
                cost="Attributes are set on every output tensor, in Python.",
                avoid="Nothing needs to be avoided: it saves recompiles.",
                wrapper=RUNTIME,
            )
        )
    return costs


def _randomness(summary: Summary) -> list[WrapperCost]:
    costs = []
    if summary.get("rng_functionalized"):
        costs.append(
            WrapperCost(
                title="Random numbers are functionalised",
                what=(
                    "Seed and offset of the CUDA generator are inputs of the graph, and the "
                    "new offset is an output."
                ),
                cost=(
                    "Each call reads the generator's state into tensors, and writes the offset "
                    "back."
                ),
                avoid=(
                    "Leave torch._functorch.config.functionalize_rng_ops off, unless "
                    "recomputing needs it."
                ),
                wrapper="FunctionalizedRngRuntimeWrapper",
            )
        )
    if count := summary.get("graphsafe_rng_state_count"):
        costs.append(
            WrapperCost(
                title=f"Generators are passed along for recomputing: {count}",
                what="The backward computes random operations again (dropout under activation "
                "checkpointing, say) and"
                " must draw the same numbers: forward and backward each get generators as inputs.",
                cost="The generators are appended to the arguments; where forwards and "
                "backwards do not alternate,"
                " their states are copied out and back.",
                avoid="Keep random operations out of the regions that are recomputed.",
                wrapper=AUTOGRAD,
            )
        )
    return costs


def _subclasses(summary: Summary) -> list[WrapperCost]:
    costs = []
    inputs, outputs = (
        summary.get("subclass_input_count") or 0,
        summary.get("subclass_output_count") or 0,
    )
    if inputs or outputs:
        costs.append(
            WrapperCost(
                title=f"Tensor subclasses are unwrapped and wrapped: {inputs} in, {outputs} out",
                what="The graph knows plain tensors only: each subclass is taken apart before "
                "it, and each result of"
                " the graph that is one (outputs, written inputs, shared bases) is put "
                "together after it.",
                cost="Attributes of each inner tensor are read, and __tensor_unflatten__ is "
                "called for each result,"
                " all in Python; in the backward, each gradient's type and metadata are "
                "checked as well.",
                avoid=(
                    "Compile a larger region, so that subclasses cross its border less often, "
                    "or pass inner tensors."
                ),
                wrapper="AOTDispatchSubclassWrapper",
            )
        )
    if waits := summary.get("async_collective_input_count"):
        costs.append(
            WrapperCost(
                title=f"Collectives are waited for before the graph: {waits}",
                what="Inputs are results of collectives that may still be running.",
                cost="The call waits for each of them, which ends their overlap with computing.",
                avoid="Compile the collective and what uses its result together.",
                wrapper="AOTDispatchSubclassWrapper",
            )
        )
    return costs


def _effects(summary: Summary) -> list[WrapperCost]:
    if not (count := summary.get("effect_token_count")):
        return []
    return [
        WrapperCost(
            title=f"Side effects are kept in order by tokens: {count}",
            what="The graph has operations with side effects (printing, calls of custom "
            "objects). Tokens that pass"
            " through the graph keep their order.",
            cost=(
                "The lists of arguments and of outputs are built once more, with a placeholder "
                "for each token."
            ),
            avoid=(
                "Move these operations out of the compiled function; inductor's graphs need no "
                "tokens."
            ),
            wrapper="EffectTokensWrapper",
        )
    ]


def _autograd(summary: Summary) -> list[WrapperCost]:
    if not summary.get("trained"):
        return []
    also = ""
    if summary.get("backward_mutation_count"):
        also = " The backward writes to inputs: it raises an error under create_graph=True."
    costs = [
        WrapperCost(
            title="Forward and backward are one autograd function",
            what=(
                "Some result needs gradients, so the graph runs as a "
                f"torch.autograd.Function.{also}"
            ),
            cost="Each call enters the function, saves what the backward needs and makes "
            "autograd's node; each backward"
            " checks the gradients that come in, and copies those whose strides are not the "
            "expected ones.",
            avoid=(
                "Call the function under torch.no_grad() or torch.inference_mode() where no "
                "gradient is needed."
            ),
            wrapper=AUTOGRAD,
        )
    ]
    if tangents := summary.get("traced_tangent_count"):
        costs.append(describe_tangents(tangents))
    if (symints := summary.get("saved_symint_count")) is not None:
        costs.append(EAGER_BACKWARD if symints else LAZY_BACKWARD)
    if donated := summary.get("donated_buffer_count"):
        costs.append(describe_donated(donated))
    return costs
