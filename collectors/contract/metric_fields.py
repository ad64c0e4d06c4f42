"""Every field of CompilationMetrics in torch 2.4 to 2.13, with its unit and meaning.

Source: torch/_dynamo/utils.py, class CompilationMetrics, of 2.4.1 to 2.13.0.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Field:
    unit: str
    help: str


_TABLE = """
compile_id|id|Frame and compile number of the process, as torch prints it.
frame_key|id|Number of the code object in this process.
co_name|text|Name of the compiled function's code.
co_filename|text|File of the compiled function.
co_firstlineno|count|First line of the compiled function.
cache_size|count|Cache entries the code already had for this object.
accumulated_cache_size|count|Cache entries the code already had, over all objects.
guard_count|count|Guards installed.
shape_env_guard_count|count|Guards on symbolic shapes.
graph_op_count|count|Calls in the captured graph.
graph_node_count|count|Nodes in the captured graph.
graph_input_count|count|Inputs of the captured graph.
start_time|time_s|When the compile began.
entire_frame_compile_time_s|s|Time of the whole compile.
backend_compile_time_s|s|Time in the backend: AOTAutograd, inductor and below.
inductor_compile_time_s|s|Time in inductor, code generation included.
code_gen_time_s|s|Time in inductor's code generation, triton included.
fail_type|text|Type of the exception that ended the compile.
fail_reason|text|Message of that exception.
fail_user_frame_filename|text|File of the user's frame where it failed.
fail_user_frame_lineno|count|Line of the user's frame where it failed.
non_compliant_ops|list|Custom operators that do not follow torch's rules.
compliant_custom_ops|list|Custom operators that do.
restart_reasons|list|Why tracing restarted.
dynamo_time_before_restart_s|s|Time in attempts before the last restart.
stack_trace|list|Stack at which the compile began.
exception_stack_trace|list|Traceback of the exception that ended the compile.
graph_node_shapes|json|Shapes of the graph's nodes.
has_guarded_code|bool|Whether compiled code was installed.
possibly_missed_reinplacing_opportunities|count|Mutations that may have stayed copies (2.5).
remote_cache_time_saved_s|s|Time that torch says its caches saved; filled for local hits too.
structured_logging_overhead_s|s|Time spent on writing torch's trace log.
config_suppress_errors|bool|dynamo's suppress_errors.
config_inline_inbuilt_nn_modules|bool|dynamo's inline_inbuilt_nn_modules.
specialize_float|bool|dynamo's specialize_float.
dynamo_config|json|dynamo's configuration.
compiler_config|json|torch.compiler's configuration.
inductor_config|json|inductor's configuration.
functorch_config|json|functorch's configuration.
is_forward|bool|True for a forward compile, False for a backward one.
is_runtime|bool|True for what compiled code did at its first calls.
num_triton_bundles|count|Triton kernels bundled into a cache entry.
remote_fx_graph_cache_get_time_ms|ms|Time reading the remote FX graph cache.
remote_fx_graph_cache_put_time_ms|ms|Time writing the remote FX graph cache.
remote_fx_graph_cache_get_time_us|us|Time reading the remote FX graph cache.
remote_fx_graph_cache_put_time_us|us|Time writing the remote FX graph cache.
start_time_us|time_us|When the record's work began.
end_time_us|time_us|When the record's work ended.
duration_us|us|Time of the record's outermost work.
dynamo_cumulative_compile_time_us|us|Time in dynamo and all below it.
aot_autograd_cumulative_compile_time_us|us|Time in the backend: AOTAutograd and all below it.
inductor_cumulative_compile_time_us|us|Time in inductor and all below it.
inductor_code_gen_cumulative_compile_time_us|us|Time in inductor's code generation, triton included.
triton_compile_time_us|us|Time waiting for triton kernels to compile.
runtime_cudagraphify_time_us|us|Time recording CUDA graphs.
runtime_triton_autotune_time_us|us|Time autotuning triton kernels at their first calls.
compile_time_autotune_time_us|us|Time autotuning while compiling.
dynamo_compile_time_before_restart_us|us|Time in attempts before the last restart.
cuda_synchronize_time_us|us|Time waiting for the GPU (2.6).
distributed_ephemeral_timeout_us|us|How much longer a collective may wait, thanks to a cache hit.
structured_logging_overhead_us|us|Time spent on writing torch's trace log.
backward_cumulative_compile_time_us|us|Time of the backward compile.
pre_grad_pass_time_us|us|Time in graph passes before autograd.
post_grad_pass_time_us|us|Time in graph passes after autograd.
joint_graph_pass_time_us|us|Time in passes on the joint forward and backward graph.
gc_time_us|us|Time in Python's garbage collector.
guard_latency_us|us|Time that one check of the guards takes.
pgo_put_remote_code_state_time_us|us|Time writing the profile of dynamic shapes.
pgo_get_remote_code_state_time_us|us|Time reading the profile of dynamic shapes.
triton_kernel_compile_times_us|json|Compile time of each triton kernel.
log_format_version|count|Version of this record's format.
remote_cache_version|version|Version of the remote cache.
inductor_fx_remote_cache_hit_count|count|Hits in the remote FX graph cache.
inductor_fx_remote_cache_miss_count|count|Misses in the remote FX graph cache.
inductor_fx_remote_cache_backend_type|text|Kind of the remote FX graph cache.
inductor_fx_remote_cache_hit_keys|text|Keys that hit in the remote FX graph cache.
inductor_fx_remote_cache_miss_keys|text|Keys that missed in the remote FX graph cache.
inductor_fx_local_cache_hit_count|count|Hits in the local FX graph cache.
inductor_fx_local_cache_miss_count|count|Misses in the local FX graph cache.
aotautograd_remote_cache_hit_count|count|Hits in AOTAutograd's remote cache.
aotautograd_remote_cache_miss_count|count|Misses in AOTAutograd's remote cache.
aotautograd_local_cache_hit_count|count|Hits in AOTAutograd's local cache.
aotautograd_local_cache_miss_count|count|Misses in AOTAutograd's local cache.
cuda_version|version|CUDA that torch was built for.
triton_version|version|Version of triton.
python_version|version|Version of Python.
pytorch_version|version|Version of torch.
feature_usage|json|Which optional features were used.
tensorify_float_attempt|bool|Whether floats were turned into tensors.
tensorify_float_success|bool|Whether that worked.
tensorify_float_failure|list|Why it did not.
recompile_reason|text|The newest cache entry's failed guard.
recompile_user_contexts|list|The program's own context at the recompile.
num_graph_breaks|count|The process's graph breaks so far, where inductor compiled; \
no count of this compile.
ir_count|count|Bytecode instructions of the function.
cudagraph_skip_reason|text|Why inductor used no CUDA graph.
param_numel|count|Elements of the graph's parameters.
param_bytes|bytes|Size of the graph's parameters.
param_count|count|Parameters of the graph.
inline_inbuilt_nn_modules_candidate|bool|Whether inlining of torch's own modules was on trial.
inductor_provenance|list|Which kernels came of which nodes.
"""

FIELDS: dict[str, Field] = {
    name: Field(unit, meaning)
    for name, unit, meaning in (line.split("|", 2) for line in _TABLE.strip().splitlines())
}
