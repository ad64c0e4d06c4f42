-- Version 11: numbers of export, packages, ranks and quantization. What was not measured is null.

alter table results add column export_latency_s real;
alter table results add column load_latency_s real;           -- of a package, or of precompiled code
alter table results add column second_process_latency_s real; -- the first call in a second process
alter table results add column package_bytes real;
alter table results add column scaling_efficiency real;       -- ranks · batch ÷ time, ÷ that of one process
alter table results add column output_error real;             -- largest relative error against eager
alter table results add column quantized_error real;          -- against eager in float32
alter table results add column quantized_eager_error real;    -- compiled quantized against eager quantized

-- Means over the models that have the number, by every definition.
alter table run_summaries add column load_latency_s real;
alter table run_summaries add column package_bytes real;
alter table run_summaries add column scaling_efficiency real;
alter table run_summaries add column quantized_error real;
