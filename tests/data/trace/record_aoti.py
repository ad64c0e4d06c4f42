"""Export a module with a symbolic size and package it with AOTInductor: records outside any compile
have a stack.

TORCH_TRACE=DIR python tests/data/trace/record_aoti.py PACKAGE.pt2, then
tests/data/trace/filter_log.py with +create_symbol +describe_tensor +describe_storage
+describe_source +aot_inference_graph +graph_dump +chromium_event.
"""

import sys

import torch


class Tower(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.layer(x)) + x.sum()


def export_tower() -> torch.export.ExportedProgram:
    batch = torch.export.Dim("batch", min=2, max=64)
    return torch.export.export(Tower(), (torch.randn(4, 8),), dynamic_shapes={"x": {0: batch}})


if __name__ == "__main__":
    torch._inductor.aoti_compile_and_package(export_tower(), package_path=sys.argv[1])
