"""Read and write a repro as a `.tar.gz` with its manifest, programs and input values, or as one
script.

    manifest.json  program.py  dynamo_program.py  values/<SHA-256 of a storage's bytes>

Archives are untrusted: they are read in memory, never unpacked, and may contain only these names.
"""

from __future__ import annotations

import ast
import base64
import gzip
import hashlib
import io
import json
import re
import tarfile
import zlib
from collections.abc import Mapping
from typing import IO, Any, NamedTuple

from compileboard.collectors.contract.repros import (
    MAX_PROGRAM_CHARS,
    MAX_STORAGE_BYTES,
    ReproInput,
    ReproManifest,
    dump_manifest,
    load_manifest,
)
from compileboard.collectors.formats.torch_repro import count_extent, evaluate_size, strip_tail

MANIFEST, PROGRAM, DYNAMO_PROGRAM, VALUES = (
    "manifest.json",
    "program.py",
    "dynamo_program.py",
    "values/",
)
MAX_ARCHIVE_BYTES = 512 << 20  # unpacked
MAX_MEMBERS = 10_000
_VALUES = re.compile(r"values/([0-9a-f]{64})\Z")
_GZIP = b"\x1f\x8b"


class BadArchive(ValueError):
    pass


class ReproParts(NamedTuple):
    manifest: ReproManifest
    program: str
    dynamo_program: str | None
    values: dict[str, bytes]


def is_archive(head: bytes) -> bool:
    return head.startswith(_GZIP)


def write_archive(
    manifest: ReproManifest, program: str, dynamo_program: str | None, values: Mapping[str, bytes]
) -> bytes:
    """Return the bytes of the archive; the same repro always gives the same bytes."""
    members = {MANIFEST: json.dumps(dump_manifest(manifest), indent=1, sort_keys=True).encode()}
    members[PROGRAM] = program.encode("utf-8", "surrogatepass")
    if dynamo_program is not None:
        members[DYNAMO_PROGRAM] = dynamo_program.encode("utf-8", "surrogatepass")
    members.update({f"{VALUES}{digest}": body for digest, body in sorted(values.items())})
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", mtime=0, filename="") as stream,
        tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, body in members.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(body), 0o644
            archive.addfile(entry, io.BytesIO(body))
    return packed.getvalue()


def read_archive(file: IO[bytes], max_bytes: int = MAX_ARCHIVE_BYTES) -> ReproParts:
    """Read an archive in memory.

    Raises BadArchive, for example if it unpacks to more than `max_bytes`.
    """
    members: dict[str, bytes] = {}
    try:
        with (
            gzip.GzipFile(fileobj=file, mode="rb") as stream,
            _LimitedReader(stream, max_bytes) as bounded,
            tarfile.open(fileobj=bounded, mode="r:") as tar,
        ):
            for entry in tar:
                if len(members) >= MAX_MEMBERS:
                    raise BadArchive(
                        f"this archive has more than {MAX_MEMBERS:,} files, which no repro has"
                    )
                _check_member(entry, members)
                body = tar.extractfile(entry)
                assert body is not None
                members[entry.name] = body.read()
            while bounded.read(1 << 20):  # Reads up to the checksum.
                pass
    except (
        tarfile.TarError,
        EOFError,
        OSError,
        zlib.error,
        UnicodeError,
        OverflowError,
        MemoryError,
    ) as error:
        raise BadArchive(
            f"this archive cannot be read ({error or type(error).__name__}); copy it again"
        ) from None
    return _make_parts(members)


def _check_member(entry: tarfile.TarInfo, members: Mapping[str, bytes]) -> None:
    shown = ascii(entry.name[:80])
    if not entry.isreg() or entry.issparse():
        raise BadArchive(
            f"this archive has {shown}, which is not a regular file; a repro has only regular files"
        )
    if entry.name not in (MANIFEST, PROGRAM, DYNAMO_PROGRAM) and not _VALUES.match(entry.name):
        raise BadArchive(
            f"this archive has {shown}; expected {MANIFEST}, {PROGRAM}, {DYNAMO_PROGRAM} and "
            f"{VALUES}<SHA-256>"
        )
    if entry.name in members:
        raise BadArchive(f"this archive has {shown} twice")
    most = MAX_STORAGE_BYTES if entry.name.startswith(VALUES) else 4 * MAX_PROGRAM_CHARS
    if entry.size > most:
        raise BadArchive(
            f"this archive's {shown} has {entry.size:,} bytes; expected at most {most:,}"
        )


def _make_parts(members: Mapping[str, bytes]) -> ReproParts:
    if MANIFEST not in members or PROGRAM not in members:
        raise BadArchive(f"this archive is not a repro: expected {MANIFEST} and {PROGRAM} in it")
    values: dict[str, bytes] = {}
    for name, body in members.items():
        match = _VALUES.match(name)
        if match:
            if hashlib.sha256(body).hexdigest() != match.group(1):
                raise BadArchive(
                    f"the values {match.group(1)[:12]}… of this archive are damaged; copy it again"
                )
            values[match.group(1)] = body
    try:
        manifest = load_manifest(json.loads(members[MANIFEST]))
        program = members[PROGRAM].decode("utf-8")
        dynamo_program = (
            members[DYNAMO_PROGRAM].decode("utf-8") if DYNAMO_PROGRAM in members else None
        )
    except (ValueError, TypeError, RecursionError) as error:
        raise BadArchive(f"this archive's repro cannot be read: {error}") from None
    return ReproParts(manifest, program, dynamo_program, values)


class _LimitedReader(io.RawIOBase):
    def __init__(self, stream: gzip.GzipFile, max_bytes: int) -> None:
        self._stream = stream
        self._max_bytes = max_bytes

    def read(self, size: int = -1) -> bytes:
        position = self._stream.tell()
        chunk = self._stream.read(
            min(size, self._max_bytes + 1 - position) if size >= 0 else self._max_bytes + 1
        )
        if position + len(chunk) > self._max_bytes:
            raise BadArchive(
                f"more than {self._max_bytes:,} bytes come out of this archive, the limit"
            )
        return chunk

    def seek(self, position: int, whence: int = 0) -> int:
        if position > self._max_bytes:
            raise BadArchive(
                f"more than {self._max_bytes:,} bytes come out of this archive, the limit"
            )
        return self._stream.seek(position, whence)

    def tell(self) -> int:
        return self._stream.tell()


MARK = "# ---- CompileBoard: the inputs, and what this is of ----"
INLINE_BYTES = 1 << 20  # The size of unpacked values.
SEED = 7
_INDEXES = re.compile(r"embedding|index|gather|scatter|select|take")

_TEMPLATE = '''
{mark}
MANIFEST = {manifest}
DYNAMO_PROGRAM = {dynamo_program}
VALUES = {values}  # a storage's bytes by their SHA-256: zlib, base64
INPUTS = {inputs}
PRELOAD = {preload}
BACKEND = {backend}
MEMORY_SHARE, SECONDS = 0.75, 600  # of the free memory, and of one run, that this script may take


def limit():
    """End this script, not the machine, where the graph takes all memory or never ends."""
    import faulthandler, os, sys, threading

    def stop():
        faulthandler.dump_traceback()
        print(f"This script may run {{SECONDS}} seconds: see SECONDS in it.", file=sys.stderr)
        os._exit(1)

    if sys.argv[1:2] in ([], ["run"]):
        timer = threading.Timer(SECONDS, stop)
        timer.daemon = True
        timer.start()
        faulthandler.dump_traceback_later(SECONDS + 5, exit=True)  # where no thread can run
    if os.path.exists("/proc/self/statm"):
        import resource

        with open("/proc/meminfo") as lines:
            free = next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
        with open("/proc/self/statm") as numbers:
            used = int(numbers.read().split()[5]) * resource.getpagesize()
        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        most = used + int(free * 1024 * MEMORY_SHARE)
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (most, hard))
    hook = sys.excepthook

    def explain(kind, error, trace):
        hook(kind, error, trace)
        if kind is MemoryError or "memory" in str(error):
            share = f"{{MEMORY_SHARE:.0%}} of the free memory"
            print(f"This script may take {{share}}: see MEMORY_SHARE in it.", file=sys.stderr)

    sys.excepthook = explain


def preload():
    """Import what registers the operations, lowerings and backends that the graph needs, without
    compiling what a script runs on import.
    """
    import importlib, importlib.util, os, sys
    import torch._dynamo

    folders = [os.getcwd(), os.path.dirname(os.path.abspath(globals().get("__file__", "")))]
    for folder in tuple(folders):  # files of a repository are named from its root
        while not os.path.exists(os.path.join(folder, ".git")) and len(folder) > 1:
            folder = os.path.dirname(folder)
        folders.append(folder)
    for entry in PRELOAD:
        name, _, function = entry.partition(":")
        if name.endswith(".py"):
            stem = os.path.basename(name)[:-3]
            paths = [os.path.join(folder, name) for folder in folders]
            path = next(filter(os.path.exists, paths), None)
            if path is None:
                sys.exit(f"this repro needs {{name}}: run it where that file is, or put it beside \
this script")
            spec = importlib.util.spec_from_file_location(stem, path)
            module = sys.modules[stem] = importlib.util.module_from_spec(spec)
            with torch._dynamo.config.patch(disable=True):
                spec.loader.exec_module(module)
        else:
            module = importlib.import_module(name)
        if hasattr(module, BACKEND):
            from torch._dynamo.backends.registry import list_backends, register_backend

            if BACKEND not in list_backends(exclude_tags=()):
                register_backend(getattr(module, BACKEND), BACKEND)
        if function and function != BACKEND:
            getattr(module, function)()


def make_inputs():
    """Return the inputs: recorded bytes where they are here, else drawn from a seed; \
what shares storage does so."""
    import base64, zlib

    generator = torch.Generator().manual_seed({seed})
    storages, inputs = {{}}, []
    for spec in INPUTS:
        if "shape" not in spec:
            inputs.append(spec.get("value"))
            continue
        dtype = getattr(torch, spec["dtype"])
        key = spec["storage"]
        if key not in storages:
            size = spec["bytes"]
            if spec.get("digest") in VALUES:
                body = bytearray(zlib.decompress(base64.b64decode(VALUES[spec["digest"]])))
                raw = torch.frombuffer(body, dtype=torch.uint8) if body \
else torch.empty(0, dtype=torch.uint8)
            else:
                count = -(-size // dtype.itemsize)
                if dtype.is_floating_point or dtype.is_complex:
                    drawn = torch.randn(count, generator=generator).to(dtype)
                elif spec.get("index"):
                    drawn = torch.zeros(count, dtype=dtype)
                else:
                    drawn = torch.randint(0, 2 if dtype is torch.bool else 8, (count,), \
generator=generator).to(dtype)
                raw = drawn.view(torch.uint8)
            storages[key] = raw.to(spec["device"]).untyped_storage()
        tensor = torch.empty(0, dtype=dtype, device=spec["device"])
        tensor.set_(storages[key], spec["offset"], spec["shape"], spec["stride"])
        inputs.append(tensor.requires_grad_(spec.get("requires_grad", False)))
    return inputs


def load_args(reader):
    if hasattr(reader, "args"):
        reader.args.extend(make_inputs())


load_args._version = 0
{tail}'''
_AOT_TAIL = """
if __name__ == "__main__":
    from torch._dynamo.repro.after_aot import run_repro

    limit()
    preload()
    with torch.no_grad():
        run_repro(
            mod,
            load_args,
            accuracy={accuracy!r},
            command="run",
            save_dir=None,
            tracing_mode={tracing_mode!r},
            check_str=None,
        )
"""
_DYNAMO_TAIL = """
if __name__ == "__main__":
    from torch._dynamo.repro.after_dynamo import run_repro

    limit()
    preload()
    run_repro(mod, load_args, accuracy={accuracy!r}, command="run", save_dir=None, autocast=False, \
backend={backend!r})
"""


class BadScript(ValueError):
    pass


def write_script(
    manifest: ReproManifest, program: str, dynamo_program: str | None, values: Mapping[str, bytes]
) -> tuple[str, bool]:
    """Return the text of a script and whether it contains all recorded values.

    Raises ValueError if a size cannot be evaluated.
    """
    is_whole = sum(map(len, values.values())) <= INLINE_BYTES
    inline = {
        digest: base64.b64encode(zlib.compress(body, 9)).decode()
        for digest, body in values.items()
        if is_whole
    }
    is_symbolic = any(entry.kind == "symint" for entry in manifest.inputs) or bool(manifest.symbols)
    tail = (_DYNAMO_TAIL if manifest.level == "dynamo" else _AOT_TAIL).format(
        accuracy=manifest.kind == "accuracy",
        tracing_mode="symbolic" if is_symbolic else "real",
        backend=manifest.backend or "inductor",
    )
    body = strip_tail(program)
    text = _TEMPLATE.format(
        mark=MARK,
        manifest=ascii(json.dumps(dump_manifest(manifest), sort_keys=True)),
        dynamo_program=ascii(dynamo_program),
        values=_format_values(inline),
        inputs=_format_inputs(manifest, body),
        preload=ascii(list(manifest.preload)),
        backend=ascii(manifest.backend or "inductor"),
        seed=SEED,
        tail=tail,
    )
    return body + text, is_whole


def is_exported(text: str) -> bool:
    return f"\n{MARK}\n" in text


def read_script(text: str) -> ReproParts:
    """Parse an exported file without executing it. Raises BadScript if it is damaged."""
    program, _, rest = text.partition(f"\n{MARK}\n")
    try:
        constants = {
            node.targets[0].id: ast.literal_eval(node.value)
            for node in ast.parse(rest).body
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        }
        manifest = load_manifest(json.loads(constants["MANIFEST"]))
        dynamo_program = constants["DYNAMO_PROGRAM"]
        values = {
            str(digest): _unpack_values(str(digest), body)
            for digest, body in constants["VALUES"].items()
        }
    except BadScript:
        raise
    except (
        SyntaxError,
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        RecursionError,
        MemoryError,
    ) as error:
        raise BadScript(
            f"this exported repro is damaged ({type(error).__name__}: {str(error)[:200]})"
        ) from None
    return ReproParts(
        manifest, program, None if dynamo_program is None else str(dynamo_program), values
    )


def _unpack_values(digest: str, body: Any) -> bytes:
    try:
        raw = zlib.decompressobj().decompress(
            base64.b64decode(body, validate=True), MAX_STORAGE_BYTES
        )
    except (zlib.error, ValueError, TypeError):
        raw = None
    if raw is None or hashlib.sha256(raw).hexdigest() != digest:
        raise BadScript(
            f"the values {digest[:12]!a} of this exported repro are damaged; copy it again"
        )
    return raw


def _format_values(values: Mapping[str, str]) -> str:
    parts = ["{"]
    for digest, text in sorted(values.items()):
        lines = [
            f'        "{text[start : start + 100]}"' for start in range(0, len(text), 100)
        ] or ['        ""']
        parts += [f'    "{digest}": (', *lines, "    ),"]
    return "\n".join([*parts, "}"])


def _format_inputs(manifest: ReproManifest, program: str) -> str:
    symbols = {
        **{
            entry.expression: entry.value
            for entry in manifest.inputs
            if entry.kind == "symint" and entry.expression
        },
        **manifest.symbols,
    }
    entries = [
        _input_body(entry, number, symbols, manifest, program)
        for number, entry in enumerate(manifest.inputs)
    ]
    return "\n".join(["[", *(f"    {entry!a}," for entry in entries), "]"])


def _input_body(
    entry: ReproInput,
    number: int,
    symbols: Mapping[str, Any],
    manifest: ReproManifest,
    program: str,
) -> dict[str, Any]:
    if entry.kind != "tensor":
        value = entry.value if entry.kind != "symint" or entry.value is not None else None
        return {"name": entry.name, "value": None if entry.kind in ("other", "none") else value}
    shape = [int(evaluate_size(size, symbols)) for size in entry.shape or ()]
    stride = [int(evaluate_size(size, symbols)) for size in entry.stride or ()]
    offset = int(evaluate_size(entry.storage_offset, symbols))
    extent = count_extent(shape, stride, offset)
    sharing = [
        other
        for other in manifest.inputs
        if entry.storage is not None and other.storage == entry.storage
    ]
    size_bytes = max([extent * 16, *(other.storage_bytes or 0 for other in sharing)])
    if entry.storage_bytes is not None:
        size_bytes = max(other.storage_bytes or 0 for other in sharing)
    body: dict[str, Any] = {
        "name": entry.name,
        "dtype": entry.dtype or "float32",
        "shape": shape,
        "stride": stride,
        "offset": offset,
        "device": entry.device or "cpu",
        "storage": entry.storage if entry.storage is not None else f"own {number}",
        "bytes": size_bytes,
    }
    if entry.requires_grad:
        body["requires_grad"] = True
    if entry.digest is not None:
        body["digest"] = entry.digest
    if _is_index(entry, program):
        body["index"] = True
    return body


def _is_index(entry: ReproInput, program: str) -> bool:
    """Return whether integers may be indices. Those are filled with zero, which is always
    in range.
    """
    if (entry.dtype or "").startswith(("float", "bfloat", "complex", "bool")):
        return False
    name = re.compile(rf"\b{re.escape(entry.name)}\b")
    return any(name.search(line) and _INDEXES.search(line) for line in program.splitlines())
