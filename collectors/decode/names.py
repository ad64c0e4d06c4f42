"""Which of torch's trace records become events.

Source: an AST walk over every trace_structured call of torch 2.13, and the wheels of 2.4 to 2.11.
"""

from __future__ import annotations

import re

METRICS: dict[str, str] = {
    "compilation_metrics": "forward",
    "bwd_compilation_metrics": "backward",
    "aot_autograd_backward_compilation_metrics": "backward",
    "compilation_metrics_runtime": "runtime",
    "bwd_compilation_metrics_runtime": "runtime",
}

# Large, or told elsewhere, or of use to a compiler's author only.
UNWANTED: frozenset[str] = frozenset(
    (
        "str",
        "chromium_event",
        "describe_storage",
        "describe_tensor",
        "describe_source",
        "dynamo_output_graph",
        "dynamo_guards",
        "dynamo_cpp_guards_str",
        "aot_forward_graph",
        "aot_backward_graph",
        "aot_joint_graph",
        "aot_inference_graph",
        "aot_forward_graph_fw_metadata",
        "inductor_pre_grad_graph",
        "inductor_post_grad_graph",
        "inductor_output_code",
        "compiled_autograd_graph",
        "optimize_ddp_split_graph",
        "optimize_ddp_split_child",
        "graph_dump",
        "dump_file",
        "link",
        "export",
        "exported_program",
        "create_symbol",
        "create_unbacked_symbol",
        "guard_added",
        "guard_added_fast",
        "expression_created",
        "symbolic_shape_specialization",
        "propagate_real_tensors",
        "propagate_real_tensors_provenance",
        "artifact:before_pre_grad_graph",
        "artifact:after_pre_grad_graph",
        "artifact:before_joint_graph",
        "artifact:after_joint_graph",
        "artifact:before_post_grad_graph",
        "artifact:after_post_grad_graph",
        "artifact:inductor_post_grad_graph",
        "artifact:aot_forward_graph_fw_metadata",
        "artifact:torch._functorch.config",
        "artifact:torch._inductor.config",
        "artifact:torch._dynamo.config",
        "artifact:fx_graph_runnable",
        "artifact:triton_kernel_info",
        "artifact:dynamo_side_effects",
        "artifact:graph_execution",
        "artifact:inductor_collective_schedule",
        "artifact:inductor_runtime_and_tensor_meta",
        "artifact:compiled_autograd_graph",
        "artifact:autotuning_cache",
    )
)

# Artifacts whose names have no end: one a function, a pass or a graph.
_UNWANTED_PATTERNS = re.compile(
    r"^artifact:(?:.*_(?:ORIGINAL|MODIFIED)_BYTECODE"
    r"|(?:get|put)_.*code_state.*"
    r"|inductor_provenance_tracking_.*"
    r"|optimize_ddp_.*"
    r"|(?:before|after)_.*"
    r"|.*_graph(?:_\d+)?)$"
)


def is_wanted(name: str) -> bool:
    """Say whether a record of this name becomes an event."""
    if name in UNWANTED:
        return False
    return not (name.startswith("artifact:") and _UNWANTED_PATTERNS.match(name))
