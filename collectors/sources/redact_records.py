"""Remove the user's code from imported records, for --redact-source."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from compileboard.collectors.contract.record_names import (
    AOT_METADATA,
    ARTIFACT,
    GUARDS,
    SPAN,
    SYMBOLS,
)
from compileboard.collectors.contract.redaction import redact_source
from compileboard.collectors.decode.records import Captured, is_event

# Texts whose every form is known, so that what is the user's can be told from what is torch's. All
# others are dropped: what cannot be redacted for certain is not stored.
KNOWN_TEXTS = frozenset(
    (
        *GUARDS,
        SPAN,
        "dynamo_output_graph",
        "aot_joint_graph",
        "aot_forward_graph",
        "aot_backward_graph",
        "aot_inference_graph",
        "inductor_pre_grad_graph",
        "inductor_post_grad_graph",
        "inductor_output_code",
        "compiled_autograd_graph",
        "optimize_ddp_split_graph",
        "optimize_ddp_split_child",
        "artifact:before_pre_grad_graph",
        "artifact:after_pre_grad_graph",
        "artifact:before_joint_graph",
        "artifact:after_joint_graph",
        "artifact:before_post_grad_graph",
        "artifact:after_post_grad_graph",
        "artifact:inductor_post_grad_graph",
        "artifact:dynamo_side_effects",
        "artifact:fx_graph_runnable",
        "artifact:triton_kernel_info",
        "artifact:torch._functorch.config",
        "artifact:torch._inductor.config",
        "artifact:torch._dynamo.config",
        "artifact:graph_execution",
        "artifact:inductor_collective_schedule",
        "artifact:inductor_runtime_and_tensor_meta",
        "artifact:autotuning_cache",
        "artifact:torch_version",
    )
)
# Torch's own records without a text of known form, whose fields are names and numbers.
KNOWN_METADATA = frozenset(
    (
        *(
            "describe_tensor",
            "describe_storage",
            "describe_source",
            "dump_file",
            "link",
            "graph_dump",
            "export",
        ),
        *("exported_program", "missing_fake_kernel", "mismatched_fake_kernel"),
    )
)

_KNOWN_ENVELOPE = ("stack", "subgraph_name")
# A Triton kernel of the user's stands as source in a text that is known otherwise; what says that
# one does.
_KERNELS = {"inductor_output_code": "user_autotune", "artifact:fx_graph_runnable": "@triton.jit"}


def redact_record(captured: Captured) -> Captured:
    captured = replace(captured, envelope=_redact_envelope(captured.envelope))
    known = is_event(captured.name) or captured.name in KNOWN_TEXTS or captured.name in SYMBOLS
    kernel = _KERNELS.get(captured.name)
    known = known and not (
        kernel and isinstance(captured.payload, str) and kernel in captured.payload
    )
    metadata = redact_source(captured.metadata)
    if (
        not known
        and not kernel
        and not captured.name.startswith(ARTIFACT)
        and captured.name not in KNOWN_METADATA
    ):
        metadata = None
    logged = captured.logged
    if logged is not None and logged.whole is not None:
        logged = replace(logged, whole=None)
    if known:
        return replace(
            captured, metadata=metadata, payload=redact_source(captured.payload), logged=logged
        )
    if logged is not None and logged.state != "none":
        logged = replace(logged, state="withheld")
    # Its summary is free of code; its text has the user's stack traces inside strings.
    payload = captured.payload if captured.name == AOT_METADATA else None
    return replace(captured, metadata=metadata, payload=payload, logged=logged)


def _redact_envelope(envelope: dict[str, Any] | None) -> dict[str, Any] | None:
    redacted = {
        key: redact_source(value)
        for key, value in (envelope or {}).items()
        if key in _KNOWN_ENVELOPE
    }
    return redacted or None
