"""Write the trace log of graphs with a backward: symbolic sizes, donated and checked inputs.

    python tests/data/trace/record_aot_wrappers.py tests/data/trace/torch2.13-aot-wrappers.log.xz

Spans, cache records, guards and inductor's texts are left out.
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
    "aot_",
    "create_symbol",
    "dynamo_start",
    "compilation_metrics",
    "_wrapper",
    "torch._functorch.config",
    '"str"',
)

RECORD = re.compile(r"(?m)^([^\t\n].*)\n((?:\t.*\n)*)")


def program():
    import torch
    import torch._functorch.config as functorch_config

    def step(x, w):
        y = torch.sin(x @ w)
        return torch.cos(y).relu(), y.sum()

    compiled = torch.compile(step)
    w = torch.randn(8, 8, requires_grad=True)
    for rows in (8, 6):
        first, second = compiled(torch.randn(rows, 8, requires_grad=True), w)
        (first.sum() + second).backward()
    with functorch_config.patch(debug_assert=True):
        torch.compile(lambda x, w: x @ w)(torch.randn(4, 8), w).sum().backward()


def main(out):
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {
            "TORCH_TRACE": folder,
            "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1",
        }
        subprocess.run([sys.executable, __file__], env=environment, check=True)
        [log] = glob.glob(f"{folder}/*.log")
        text = Path(log).read_text().replace(str(Path(__file__).resolve().parent), "/srv/bench")
    text = re.sub(r"/[^\s\"]*site-packages", "/srv/lib", text)
    text = text.replace(str(Path.cwd()), "/srv")
    records = [
        (head, body) for head, body in RECORD.findall(text) if any(name in head for name in KEPT)
    ]
    filtered = "".join(
        f"{sign(head, body)}\n{body}" for head, body in records if '"chromium_event"' not in head
    )
    Path(out).write_bytes(lzma.compress(filtered.encode(), preset=9))


def sign(head, body):
    """Put the checksum of a payload whose paths were shortened into its record."""
    text = re.sub("(?m)^\t", "", body.removesuffix("\n"))
    return re.sub(r'("has_payload": )"\w+"', rf'\1"{hashlib.md5(text.encode()).hexdigest()}"', head)


if __name__ == "__main__":
    main(*sys.argv[1:]) if sys.argv[1:] else program()
