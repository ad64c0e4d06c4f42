"""What each component of a cache key is, and what changes it, in plain words."""

from __future__ import annotations

# Source: FxGraphHashDetails in torch/_inductor/codecache.py and AOTAutogradCacheDetails of 2.11 and 2.13.
# What people change most often stands first; the order is that of a comparison's lines.
_WORDS: dict[str, str] = {
    "gm": "The graph itself: changed by other code, another path through it, or constants compiled in.",
    "example_inputs": "One input of the graph: changed by another shape, stride, dtype, device or requires_grad, "
    "by a size that became dynamic, or by inputs in another order.",
    "inductor_config": "A setting of torch._inductor.config: changed by code, by options= or mode= of torch.compile, "
    "or by an environment variable.",
    "fx_kwargs": "How the graph is compiled: forward or backward, inference, CUDA graphs, which inputs keep their "
    "address (static_input_idxs).",
    "inputs_to_check": "Which inputs' alignment is checked at run time: changed by which of them keep their address "
    "and are aligned.",
    "user_defined_triton_source": "The source of a Triton kernel that the graph calls: changed by editing it.",
    "triton_kernel_source_codes": "The source of the Triton kernels that the graph calls: changed by editing them.",
    "aot_config": "What AOTAutograd was told of the inputs: where each comes from, whether sizes are dynamic, whether "
    "it is an inference.",
    "autograd_config": "The settings of torch._functorch.config, as one: changed by code or an environment variable.",
    "grad_enabled": "Whether gradients were enabled: changed by torch.no_grad or torch.inference_mode.",
    "autocast_state": "Automatic mixed precision by device: changed by torch.autocast and its dtype.",
    "disable_amp": "Whether automatic mixed precision was on: changed by torch.autocast.",
    "deterministic_algorithms": "Changed by torch.use_deterministic_algorithms.",
    "deterministic_algorithms_settings": "Changed by torch.use_deterministic_algorithms, its warn_only, or "
    "torch.utils.deterministic.fill_uninitialized_memory.",
    "cuda_matmul_settings": "Precision of CUDA matrix products: changed by torch.backends.cuda.matmul (TF32, reduced "
    "precision) or torch.set_float32_matmul_precision.",
    "default_dtype": "Changed by torch.set_default_dtype.",
    "cpp_runtime_thread_count": "How many threads CPU code is compiled for: changed by torch.set_num_threads, "
    "OMP_NUM_THREADS or a machine with other cores.",
    "saved_tensors_hooks_fx_wrap_cache_hashes": "Hooks on saved tensors that are compiled in: changed by their code.",
    "sac_context_fn_hashes": "Functions that choose what activation checkpointing keeps: changed by their code.",
    "region_activation_memory_budget": "How much memory the graph may keep for the backward.",
    "custom_estimator_solver_uuids": "Custom estimators of the partitioner's run time and memory.",
    "cache_key_tag": "torch.compiler.config.cache_key_tag: a text that people set to keep caches apart.",
    "torch_version": "The build of torch, as a hash of its sources: changed by installing another one.",
    "system_info": "The machine: the GPU's model, and the versions of CUDA (or HIP) and Triton.",
    "provenance_tracking_level": "Whether inductor tracks which nodes a kernel comes from.",
    "precompile_enabled": "Whether the compile is for torch's precompilation.",
    "custom_backend_passes": "Graph passes of other device backends.",
    "_fuse_ddp_communication_passes": "Which passes fuse the collectives of DDP: changed by inductor's settings.",
    "_custom_partitioner_fn": "A custom function that splits forward and backward: changed by its uuid().",
}
_PASSES = "A custom graph pass: changed by setting one, or by its uuid()."
_PLACES = {name: place for place, name in enumerate(_WORDS)}


def explain_component(name: str) -> str:
    """Say what a component of a cache key is and what changes it; empty where nobody knows."""
    group = _group(name)
    return _WORDS.get(group) or (_PASSES if "_custom" in group and group.endswith("_pass") else "")


def order_component(name: str) -> tuple[int, str, int, str]:
    """Order components by what matters to people, then by name and number: input 2 before input 10."""
    group, key = _group(name), name.partition("[")[2]
    number = key.rstrip("]")
    is_number = number.isascii() and number.isdigit() and len(number) < 9
    return _PLACES.get(group, len(_PLACES)), group, int(number) if is_number else -1, key


def _group(name: str) -> str:
    group = name.partition("[")[0]
    # torch._inductor.config_comms and its like are modules of settings too.
    return "inductor_config" if group.startswith("inductor_config_") else group
