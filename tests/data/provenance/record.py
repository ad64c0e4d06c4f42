"""Write the trace log of graphs whose kernels inductor joined to their nodes, or make one small.

    python tests/data/provenance/record.py tests/data/provenance/torch2.13.log.xz
    python tests/data/provenance/record.py OUT.log.xz LOG [OLD=NEW …]

Only graphs, generated code and what joins them are kept. The log of torch 2.11 with CUDA is a
training step of a small transformer with Adam's step, INDUCTOR_PROVENANCE=1, on an H200.
"""

import glob
import hashlib
import lzma
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

KEPT = (
    "dynamo_start",
    "before_pre_grad_graph",
    "inductor_post_grad_graph",
    "inductor_output_code",
    "inductor_provenance_tracking",
    "compilation_metrics",
    '"str"',
)
RECORD = re.compile(r"(?m)^([^\t\n].*)\n((?:\t.*\n)*)")


def program():
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.up = nn.Linear(16, 32)
            self.down = nn.Linear(32, 16)

        def forward(self, x):
            return x + self.down(nn.functional.gelu(self.up(x)))

    model = nn.Sequential(Block(), Block())

    @torch.compile
    def step(x):
        return model(x).square().mean()

    @torch.compile
    def second(x, w):
        y = torch.tanh(x @ w)
        return (y * y).sum()

    @torch.compile
    def infer(x, y):
        z = torch.softmax(x @ y, -1)
        return z.sum(), torch.sort(z)

    step(torch.randn(8, 16)).backward()
    second(torch.randn(8, 8, requires_grad=True), torch.randn(8, 8)).backward()
    with torch.no_grad():
        infer(torch.randn(8, 8), torch.randn(8, 8))


def record():
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {
            "TORCH_TRACE": folder,
            "INDUCTOR_PROVENANCE": "2",
            "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1",
            "TORCHINDUCTOR_CACHE_DIR": f"{folder}/cache",
        }
        subprocess.run([sys.executable, __file__], env=environment, check=True)
        [log] = glob.glob(f"{folder}/*.log")
        text = Path(log).read_text().replace(folder, "/tmp")
    text = text.replace(str(Path(__file__).resolve().parent), "/srv/train")
    return re.sub(r"/[^\s\"]*site-packages", "/srv/lib", text).replace(str(Path.cwd()), "/srv")


def main(out, log=None, *changes):
    text = record() if log is None else Path(log).read_text()
    for change in changes:
        text = text.replace(*change.split("=", 1))
    records = [
        (head, body)
        for head, body in RECORD.findall(text)
        if any(name in head for name in KEPT) and '"chromium_event"' not in head
    ]
    filtered = "".join(f"{sign(head, body)}\n{body}" for head, body in records)
    Path(out).write_bytes(lzma.compress(filtered.encode(), preset=9 | lzma.PRESET_EXTREME))


def sign(head, body):
    """Put the checksum of a payload whose paths were shortened into its record."""
    text = re.sub("(?m)^\t", "", body.removesuffix("\n"))
    return re.sub(r'("has_payload": )"\w+"', rf'\1"{hashlib.md5(text.encode()).hexdigest()}"', head)


if __name__ == "__main__":
    main(*sys.argv[1:]) if sys.argv[1:] else program()
