"""Load a repro's graph and inputs as torch objects, in a driver or trial. Imports torch.

    gm, inputs = load_graph(repro)                     the graph of the manifest's level
    gm, inputs = load_graph(repro, level="dynamo")     Dynamo's, if both exist

The graph is the recorded one, not retraced. With symbolic sizes, each node's `meta["val"]` is a
fake value with the recorded symbols, for the compiler. Inputs share storage as recorded. Missing
values are generated from a seed, integers within the range they index.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import linecache
import re
import types
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import torch
import torch.fx as fx
from torch._ops import HigherOrderOperator
from torch.fx.passes.fake_tensor_prop import FakeTensorProp
from torch.overrides import TorchFunctionMode, is_tensor_method_or_property
from torch.utils._pytree import tree_leaves

from compileboard.collectors.contract.repros import ReproInput
from compileboard.collectors.formats.torch_repro import (
    count_extent,
    evaluate_size,
    list_results,
    strip_tail,
)
from compileboard.collectors.observe.torch_compat import CONFIG_MODULES
from compileboard.collectors.record.memory import allowed_bytes
from compileboard.collectors.repro.isolation import restore_environment
from compileboard.collectors.repro.preloads import describe_absent, describe_raised
from compileboard.collectors.repro.repro import NotRunnable, Repro, advise_preload

SEED = 7
CALLS = ("call_function", "call_method", "call_module")
_NO_OPERATION = re.compile(r"'_OpNamespace' '(\w+)' object has no attribute '(\w+)'")
MAX_RANDOM_INTEGER = 8  # if the indexed range is unknown
_INDEXED = {  # operation: positions of the indexed value, the dimension, the index
    "embedding": (0, 0, 1),
    "index_select": (0, 1, 2),
    "gather": (0, 1, 2),
    "scatter": (0, 1, 2),
    "scatter_add": (0, 1, 2),
}
_PASSED_ON = (
    "view",
    "reshape",
    "clone",
    "expand",
    "unsqueeze",
    "squeeze",
    "permute",
    "_to_copy",
    "convert_element_type",
    "to",
)


def load_graph(
    repro: Repro, level: str | None = None, *, device: str | None = None
) -> tuple[fx.GraphModule, list[Any]]:
    """Return a repro's graph and inputs. Raises NotRunnable if its program or an input cannot be
    made here.
    """
    module = load_module(repro, level)
    try:
        gm = trace(module, list_results(repro.text(level)))
    except (AttributeError, NameError) as error:
        raise NotRunnable(_describe_unknown(repro, error)) from error
    specs = repro.inputs(level) or _specs_of_script(repro, level)
    placeholders = list_placeholders(gm)
    if len(placeholders) != len(specs):
        raise NotRunnable(
            f"the graph takes {len(placeholders)} inputs, and {len(specs)} are recorded"
        )
    _check_memory(repro, specs)
    symbols = {**_list_hints(specs), **repro.manifest.symbols}
    loader = _InputLoader(repro, specs, symbols, _find_index_bounds(gm, specs, symbols), device)
    inputs = [loader.load(spec) for spec in specs]
    if device is not None:
        gm = _move(gm, device)
    annotate(gm, specs, inputs, symbols)
    return gm, inputs


def load_module(repro: Repro, level: str | None = None) -> torch.nn.Module:
    """Execute a repro's program and return its graph as a module; see `check_trust`.

    Raises NotRunnable if the program has no module, or needs a name that is not installed.
    """
    text = strip_tail(repro.text(level))
    name = f"<repro {hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}>"
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    module = types.ModuleType("compileboard_repro")
    apply_settings(repro)
    torch.manual_seed(SEED)  # constants too long for the script are drawn
    try:
        exec(compile(text, name, "exec"), module.__dict__)  # noqa: S102  trusted, or refused before
        graph = getattr(module, "mod", None) or module.Repro()
    except ModuleNotFoundError as error:
        raise NotRunnable(describe_absent(error)) from error
    except (SyntaxError, AttributeError, NameError, ImportError) as error:
        raise NotRunnable(_describe_unknown(repro, error)) from error
    finally:
        restore_environment()
    if not isinstance(graph, torch.nn.Module):
        raise NotRunnable(f"{repro.name} has no module `mod`, as torch's repro scripts have")
    return graph


def trace(module: torch.nn.Module, names: Sequence[str] = ()) -> fx.GraphModule:
    """Convert a module to a graph node by node. Submodules remain calls.

    `names` are the names that its code assigns to the results.
    """
    gm = _Tracer.trace_module(module)
    nodes = list_calls(gm)
    if len(nodes) == len(names) == len(set(names)):
        for number, node in enumerate(nodes):
            node.name = f"__renamed_{number}"
        for node, name in zip(nodes, names):
            node.name = name
        gm.recompile()
    gm.graph.lint()
    return gm


def list_placeholders(module: Any) -> list[Any]:
    return [node for node in module.graph.nodes if node.op == "placeholder"]


def list_calls(module: Any) -> list[Any]:
    return [node for node in module.graph.nodes if node.op in CALLS]


class _Tracer(fx.Tracer):  # type: ignore[misc]  # torch is untyped here
    def is_leaf_module(self, m: torch.nn.Module, module_qualified_name: str) -> bool:
        return True

    @classmethod
    def trace_module(cls, module: torch.nn.Module) -> fx.GraphModule:
        tracer = cls(param_shapes_constant=False)
        with _FunctionsOfTorch(tracer):
            graph = tracer.trace(module)
        return fx.GraphModule(module, graph)


class _FunctionsOfTorch(TorchFunctionMode):  # type: ignore[misc]  # torch is untyped here
    """Makes nodes of calls without a traced argument too, such as `torch.arange(8)`. A tracer
    alone runs these.
    """

    def __init__(self, tracer: fx.Tracer) -> None:
        super().__init__()
        self._tracer = tracer

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        is_traced = any(isinstance(part, fx.Proxy) for part in tree_leaves((args, kwargs)))
        name = getattr(func, "__name__", "")
        if isinstance(func, type) or name == "__get__":  # `torch.device("cpu")`, `tensor.shape`
            return func(*args, **kwargs)
        if is_traced and isinstance(func, HigherOrderOperator):
            return func(*args, **kwargs)
        if is_tensor_method_or_property(func):
            return self._tracer.create_proxy("call_method", name, args, kwargs)
        return self._tracer.create_proxy("call_function", func, args, kwargs)


def _move(gm: fx.GraphModule, device: str) -> fx.GraphModule:
    """Move a graph's constants and the tensors that it makes to a device."""
    target = torch.device(device)

    def replace(value: Any) -> Any:
        return target if isinstance(value, torch.device) else value

    for node in gm.graph.nodes:
        node.args = fx.node.map_aggregate(node.args, replace)
        node.kwargs = fx.node.map_aggregate(node.kwargs, replace)
    gm.recompile()
    return gm.to(device)


def annotate(
    gm: fx.GraphModule, specs: Sequence[ReproInput], inputs: Sequence[Any], symbols: dict[str, int]
) -> None:
    if not any(_is_symbolic(spec) for spec in specs):
        return
    from torch._dispatch.python import enable_python_dispatcher
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    placeholders, env = list_placeholders(gm), ShapeEnv()
    mode = FakeTensorMode(shape_env=env, allow_non_fake_inputs=True)
    symbolic = _make_symbols(env, symbols)
    fakes = [_make_fake(mode, spec, value, symbolic) for spec, value in zip(specs, inputs)]
    for node, fake in zip(placeholders, fakes):
        node.meta["val"] = fake
    try:
        with (
            enable_python_dispatcher()
        ):  # operations written in C++ would take a symbol's number for its size
            FakeTensorProp(gm, mode).propagate_dont_convert_inputs(*fakes)
    except Exception:  # the compiler will report it
        for node, fake in zip(placeholders, fakes):
            node.meta["val"] = fake


def list_random_inputs(repro: Repro, level: str | None = None) -> list[str]:
    return [
        spec.name
        for spec in repro.inputs(level)
        if spec.kind == "tensor" and not repro.has_values(spec)
    ]


def _is_symbolic(spec: ReproInput) -> bool:
    sizes = (*(spec.shape or ()), *(spec.stride or ()), spec.storage_offset)
    return (spec.kind == "symint" and spec.expression is not None) or any(
        isinstance(size, str) for size in sizes
    )


def _list_hints(specs: Sequence[ReproInput]) -> dict[str, int]:
    return {
        spec.expression: spec.value
        for spec in specs
        if spec.kind == "symint"
        and spec.expression
        and spec.expression.isidentifier()
        and isinstance(spec.value, int)
    }


def _make_symbols(env: Any, hints: dict[str, int]) -> dict[str, Any]:
    from torch._dynamo.source import ConstantSource
    from torch.fx.experimental.symbolic_shapes import DimDynamic

    symbols: dict[str, Any] = {}
    for name, hint in hints.items():
        if name.startswith("u"):  # unknown until it runs
            symbols[name] = env.create_unbacked_symint()
            continue
        source = ConstantSource(f"__repro_{name}")
        symbol = env.create_symbol(
            hint, source, dynamic_dim=DimDynamic.DYNAMIC, do_not_specialize_zero_one=hint < 2
        )
        symbols[name] = env.create_symintnode(symbol, hint=hint, source=source)
    return symbols


def _make_fake(mode: Any, spec: ReproInput, value: Any, symbols: dict[str, Any]) -> Any:
    if spec.kind == "symint" and spec.expression is not None:
        return evaluate_size(spec.expression, symbols)
    if not isinstance(value, torch.Tensor):
        return value
    shape = [evaluate_size(size, symbols) for size in spec.shape or ()]
    stride = [evaluate_size(size, symbols) for size in spec.stride or ()]
    offset = evaluate_size(spec.storage_offset, symbols)
    with mode:
        if isinstance(offset, int) and offset == 0:
            return torch.empty_strided(shape, stride, dtype=value.dtype, device=value.device)
        extent = offset + 1 + sum((size - 1) * step for size, step in zip(shape, stride))
        return torch.empty(extent, dtype=value.dtype, device=value.device).as_strided(
            shape, stride, offset
        )


class _InputLoader:
    """Makes inputs with recorded or seeded values, and recorded strides, offsets and sharing."""

    def __init__(
        self,
        repro: Repro,
        specs: Sequence[ReproInput],
        symbols: dict[str, int],
        bounds: dict[str, int],
        device: str | None,
    ) -> None:
        self._repro = repro
        self._specs = specs
        self._symbols = symbols
        self._bounds = bounds
        self._device = device
        self._generator = torch.Generator().manual_seed(SEED)
        self._storages: dict[int, Any] = {}

    def load(self, spec: ReproInput) -> Any:
        """Make one input. Raises NotRunnable if this torch cannot make it from the recording."""
        if spec.kind == "symint" and spec.value is None:
            return self._evaluate(spec.expression or "", spec)
        if spec.kind in ("symint", "int", "float", "bool"):
            return spec.value
        if spec.kind == "none":
            return None
        if spec.kind == "tensor":
            return self._load_tensor(spec)
        if spec.value == "generator":
            return torch.Generator()
        raise NotRunnable(
            f"input {spec.name} is a {spec.value or 'value'} that cannot be recorded, nor run "
            "without it"
        )

    def _load_tensor(self, spec: ReproInput) -> Any:
        dtype = getattr(torch, spec.dtype or "float32", None)
        if not isinstance(dtype, torch.dtype):
            raise NotRunnable(
                f"input {spec.name} is of type {spec.dtype}, which torch {torch.__version__} does "
                "not have"
            )
        shape = [self._evaluate(size, spec) for size in spec.shape or ()]
        stride = [self._evaluate(size, spec) for size in spec.stride or ()]
        offset = self._evaluate(spec.storage_offset, spec)
        needed_bytes = count_extent(shape, stride, offset) * dtype.itemsize
        number = spec.storage if spec.storage is not None else -1 - len(self._storages)
        target = torch.device(self._device or spec.device or "cpu")
        if number not in self._storages:
            loaded = self._load_storage(spec, number, needed_bytes, dtype)
            try:
                self._storages[number] = loaded.to(target).untyped_storage()
            except (RuntimeError, AssertionError) as error:
                if "memory" in str(error):
                    raise
                raise NotRunnable(
                    f"input {spec.name} needs {target}: {describe_raised(error)}; try --device cpu"
                ) from None
        storage = self._storages[number]
        if storage.nbytes() < needed_bytes:
            storage.resize_(needed_bytes)
        tensor = torch.empty(0, dtype=dtype, device=target)
        with torch.no_grad():
            tensor.set_(storage, offset, shape, stride)
        if spec.is_parameter:
            return torch.nn.Parameter(tensor, requires_grad=spec.requires_grad)
        return tensor.requires_grad_(spec.requires_grad)

    def _load_storage(
        self, spec: ReproInput, number: int, needed_bytes: int, dtype: torch.dtype
    ) -> torch.Tensor:
        repro = self._repro
        body = repro.values.get(spec.digest) if spec.digest is not None else None
        if body is not None:
            empty = torch.empty(0, dtype=torch.uint8)
            return torch.frombuffer(bytearray(body), dtype=torch.uint8) if body else empty
        content_hash = repro.storage_hashes.get(number)
        if content_hash is not None and repro.storage_folder is not None:
            from torch.utils._content_store import ContentStoreReader

            # Without its file torch draws the values too; `list_random_inputs` reports that.
            with suppress(FileNotFoundError):
                reader = ContentStoreReader(repro.storage_folder)
                storage = reader.read_storage(content_hash, device="cpu")
                return torch.empty(0, dtype=torch.uint8).set_(storage)
        sharing = [spec, *(other for other in self._specs if other.storage == number)]
        size = max(needed_bytes, *(part.storage_bytes or 0 for part in sharing))
        bounds = [self._bounds[part.name] for part in sharing if part.name in self._bounds]
        count = -(-size // dtype.itemsize)
        values = draw_values(count, dtype, self._generator, min(bounds, default=None))
        return values.view(torch.uint8)[:size].clone()

    def _evaluate(self, size: int | str, spec: ReproInput) -> int:
        try:
            return int(evaluate_size(size, self._symbols))
        except (ValueError, TypeError) as error:
            raise NotRunnable(f"input {spec.name}: {error}") from None


def draw_values(
    count: int, dtype: torch.dtype, generator: torch.Generator, bound: int | None = None
) -> torch.Tensor:
    """Return a flat tensor of seeded values: normally distributed, or integers below `bound`."""
    if dtype.is_complex:
        real = torch.complex128 if dtype == torch.complex128 else torch.complex64
        return torch.randn(count, dtype=real, generator=generator).to(dtype)
    if dtype.is_floating_point:
        return torch.randn(count, dtype=torch.float32, generator=generator).to(dtype)
    if dtype == torch.bool:
        return torch.randint(0, 2, (count,), dtype=torch.uint8, generator=generator).to(dtype)
    high = max(1, min(bound if bound is not None else MAX_RANDOM_INTEGER, 1 << 31))
    values = torch.randint(0, high, (count,), dtype=torch.int64, generator=generator)
    try:
        return values.to(dtype)
    except RuntimeError:  # a quantized type: zeros of it
        return torch.zeros(count * dtype.itemsize, dtype=torch.uint8).view(dtype)


def _find_index_bounds(
    gm: fx.GraphModule, specs: Sequence[ReproInput], symbols: dict[str, int]
) -> dict[str, int]:
    by_node = dict(zip(list_placeholders(gm), specs))
    bounds: dict[str, int] = {}
    for node, spec in by_node.items():
        if spec.kind != "tensor" or (spec.dtype or "").startswith(("float", "bfloat", "complex")):
            continue
        sizes = [size for size in _find_indexed_dim_sizes(node, by_node, symbols) if size > 0]
        if sizes:
            bounds[spec.name] = min(sizes)
    return bounds


def _find_indexed_dim_sizes(
    start: fx.Node, specs: dict[fx.Node, ReproInput], symbols: dict[str, int]
) -> list[int]:
    sizes, pending, done = [], [start], {start}
    while pending:
        index = pending.pop()
        for user in index.users:
            name = _operation_name(user)
            if name in _PASSED_ON and user not in done:
                done.add(user)
                pending.append(user)
            elif name == "index" and len(user.args) > 1 and isinstance(user.args[1], (list, tuple)):
                sizes += [
                    size
                    for position, part in enumerate(user.args[1])
                    if part is index
                    and (size := _input_size(user.args[0], position, specs, symbols)) is not None
                ]
            elif name in _INDEXED:
                table, dimension, place_of_index = _INDEXED[name]
                if (
                    len(user.args) > max(table, dimension, place_of_index)
                    and user.args[place_of_index] is index
                ):
                    where = user.args[dimension] if dimension else 0
                    size = _input_size(user.args[table], where, specs, symbols)
                    sizes += [size] if size is not None else []
    return sizes


def _operation_name(node: fx.Node) -> str:
    packet = getattr(node.target, "overloadpacket", None) or node.target
    return str(getattr(packet, "__name__", packet)).rpartition(".")[2]


def _input_size(
    node: Any, dimension: Any, specs: dict[fx.Node, ReproInput], symbols: dict[str, int]
) -> int | None:
    spec = specs.get(node) if isinstance(node, fx.Node) else None
    shape = spec.shape if spec is not None else None
    if not shape or not isinstance(dimension, int) or not -len(shape) <= dimension < len(shape):
        return 1 if spec is None else None  # computed: 0 is within range
    try:
        size = evaluate_size(shape[dimension], symbols)
    except ValueError:
        return None
    return size if isinstance(size, int) else None


def _specs_of_script(repro: Repro, level: str | None) -> tuple[ReproInput, ...]:
    from compileboard.collectors.formats.torch_repro import NoTorchRepro, parse_torch_script

    try:
        return parse_torch_script(repro.text(level)).manifest.inputs
    except NoTorchRepro as error:
        raise NotRunnable(f"{repro.name}: {error}") from None


def apply_settings(repro: Repro) -> None:
    """Apply the recorded settings that this torch has."""
    for part, values in repro.manifest.settings.items():
        if part not in CONFIG_MODULES:
            continue
        target = importlib.import_module(CONFIG_MODULES[part])
        for name, text in values.items():
            try:
                value = ast.literal_eval(text) if isinstance(text, str) else text
                setattr(target, name, value)
            except (ValueError, SyntaxError, AttributeError, TypeError):
                continue


def _describe_unknown(repro: Repro, error: BaseException) -> str:
    operation = _NO_OPERATION.search(str(error))
    if operation is not None and operation.group(1) not in ("aten", "prims", "prim", "inductor"):
        name = f"torch.ops.{operation.group(1)}.{operation.group(2)}"
        advice = advise_preload(repro.manifest.preload)
        return f"{repro.name} needs {name}, which nothing here registers: {advice}"
    recorded = repro.manifest.versions.get("torch")
    of_other = (
        f", and was recorded with {recorded}" if recorded and recorded != torch.__version__ else ""
    )
    return (
        f"{repro.name} cannot be loaded by torch {torch.__version__}{of_other}: "
        f"{describe_raised(error)}"
    )


def _check_memory(repro: Repro, specs: Sequence[ReproInput]) -> None:
    storages = {spec.storage: spec.storage_bytes for spec in specs if spec.storage is not None}
    needed_bytes = sum(size or 0 for size in storages.values())
    free_bytes = allowed_bytes()
    if needed_bytes > free_bytes:
        raise NotRunnable(
            f"{repro.name} has inputs of {needed_bytes / 1e9:,.1f} GB, and "
            f"{free_bytes / 1e9:,.1f} GB are free here"
        )
