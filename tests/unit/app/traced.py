"""A small run with guards, cache look-ups and AOT metadata of two compiles of one frame; every text
may be hostile.
"""

from __future__ import annotations

import json
import sqlite3
from typing import Any

from compileboard.collectors.contract.events import (
    ArtifactSeen,
    CacheLookedUp,
    CompileStarted,
    Event,
    ProcessStarted,
    RunStarted,
)
from compileboard.collectors.decode.aot import ARTIFACT, parse_metadata, summarize
from compileboard.collectors.decode.guard_tree import count_guards
from compileboard.collectors.store.ingest.ingestor import Ingestor

RUN = "01J00000000000000000TRACED"
PROCESS = "b" * 32
START_US = 1_795_000_000_000_000


def guards_text(size: int, name: str = "x") -> str:
    """Write guards as torch does: one tensor of a size, one string."""
    return f"""
TREE_GUARD_MANAGER:
+- RootGuardManager
| +- GLOBAL_STATE: ___check_global_state()
| +- GuardManager: source=L['x'], accessed_by=FrameLocalsGuardAccessor(key='x'), type=<class \
'torch.Tensor'>
| | +- TENSOR_MATCH: check_tensor(L['x'], Tensor, Keys(CPU), torch.float32, size=[{size}])  # x + \
1  # m.py:3 in f
| | +- EQUALS_MATCH: L['x'].name == {name!r}

Guard latency = {size}.50 us
"""


def aot_text(output_type: str = "OutputType.non_alias") -> str:
    """Write AOTAutograd's metadata of a graph that writes to its first input."""
    return (
        "ViewAndMutationMeta(input_info=[InputAliasInfo(is_leaf=True, mutates_data=True, "
        "mutates_metadata=False, "
        "mutations_hidden_from_autograd=False, mutations_under_no_grad_or_inference_mode=False, "
        "mutation_inductor_storage_resize=False, mutates_storage_metadata=False, "
        "requires_grad=False, "
        "keep_input_mutations=True)], "
        f"output_info=[OutputAliasInfo(output_type=<{output_type}: 1>, base_idx=None, "
        "dynamic_dims=set(), requires_grad=False)], num_intermediate_bases=0, "
        "keep_input_mutations=True, "
        "subclass_inp_meta=[PlainTensorMeta(unwrapped_idx=0)], subclass_fw_graph_out_meta=[], "
        "tokens={}, "
        "is_train=False)"
    )


def list_traced_events(name: str = "x", payloads: bool = True) -> list[Event]:
    """Return the run: f is compiled for size 2, then for size 3."""
    events: list[Event] = [
        RunStarted(
            f"run-{RUN}",
            0,
            START_US,
            RUN,
            name,
            source="import",
            argv=["python", name],
            host={"name": "box"},
        ),
        ProcessStarted(PROCESS, 0, START_US, run_id=RUN, pid=7, rank=0, torch_version="2.13.0"),
    ]

    def tell(kind: type[Event], again: int, **values: Any) -> None:
        frame = {"compile_id": f"0/{again}", "frame_id": 0, "frame_compile_id": again, "attempt": 0}
        position = {
            "process_id": PROCESS,
            "sequence": len(events),
            "time_us": START_US + len(events) * 1000,
        }
        events.append(kind(**position, **frame, **values))

    def keep(again: int, name: str, text: str, **values: Any) -> None:
        state = {"state": "kept", "text": text} if payloads else {"state": "left_out"}
        tell(ArtifactSeen, again, name=name, size_bytes=len(text), **state, **values)

    for again in (0, 1):
        tell(CompileStarted, again, function=name, file=name, line=3)
        guards, metadata = guards_text(2 + again, name), aot_text()
        keep(again, "dynamo_cpp_guards_str", guards, guards=count_guards(guards))
        keep(again, ARTIFACT, metadata, aot=summarize(parse_metadata(metadata) or {}))
        parts = [
            f"[{'a' * 50}] gm: {name}",
            f"[{'bc'[again] * 50}] example_inputs[0]: TensorMetadata(shape=({again},))",
        ]
        key = {"key": f"f{again}{name}", "components": parts, "cache_state": "miss"}
        keep(again, "fx_graph_cache_miss", json.dumps(key), encoding="json")
        looked = {"sequence": len(events) - 1} | {
            "cache": "fx_graph",
            "result": "miss",
            "key": key["key"],
        }
        events.append(_lookup(again, looked))
    return events


def _lookup(again: int, values: dict[str, Any]) -> Event:
    frame = {"compile_id": f"0/{again}", "frame_id": 0, "frame_compile_id": again, "attempt": 0}
    return CacheLookedUp(
        process_id=PROCESS, time_us=START_US + values["sequence"] * 1000, **frame, **values
    )


def record_traced_run(
    connection: sqlite3.Connection, name: str = "x", payloads: bool = True
) -> str:
    """Ingest the run; return its id."""
    Ingestor(connection).ingest(
        RUN, list_traced_events(name, payloads), now_us=START_US + 10_000_000
    )
    return RUN
