"""List which of the names CompileBoard uses a torch wheel has.

    python -m tests.tools.torch_names WHEEL …

Nothing is installed: it reads the sources inside the wheels and prints a block a wheel, for
docs/compatibility.md.
"""

from __future__ import annotations

import ast
import re
import sys
import zipfile

from compileboard.collectors.contract.record_names import TAPPED_ARTIFACTS
from compileboard.collectors.observe.torch_compat import NAMES

SOURCES = re.compile(
    r"^torch/(_dynamo|_inductor|_functorch|_logging|_guards|utils)[\w/]*\.py$|^torch/(_guards|autograd/function)\.py$"
)


# What the hooks around compiled code need at the places where torch calls it
# (collectors/observe/runtime_failures.py).
CALL_SITES = {
    "dynamo names its graphs": ("torch/_dynamo/output_graph.py", r'unique_id\("__compiled_fn"'),
    "installs them disabled": (
        "torch/_dynamo/output_graph.py",
        r"compiled_fn = disable\((?s:.*?)\.install_global_unsafe\(name, compiled_fn\)",
    ),
    "disabled by a closure": (
        "torch/_dynamo/eval_frame.py",
        (
            r"class DisableContext(?s:.*?)return fn\(\*args, "
            r"\*\*kwargs\)(?s:.*?)_torchdynamo_orig_callable = fn\b"
        ),
    ),
    "backward is a function": (
        "torch/_functorch/_aot_autograd/runtime_wrappers.py",
        (
            r"class CompiledFunction\(torch\.autograd\.Function\):(?s:.*?)@staticmethod\s+def "
            r"backward\(ctx"
        ),
    ),
}


def defined_names(source: str) -> set[str]:
    """List what a module defines or imports at its top."""
    names: set[str] = set()
    for node in ast.parse(source).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
            methods = node.body if isinstance(node, ast.ClassDef) else []
            names |= {
                f"{node.name}.{part.name}" for part in methods if isinstance(part, ast.FunctionDef)
            }
            fields = [part.target for part in methods if isinstance(part, ast.AnnAssign)]
            names |= {
                f"{node.name}.{target.id}" for target in fields if isinstance(target, ast.Name)
            }
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        elif isinstance(node, (ast.If, ast.Try)):
            names |= defined_names(ast.unparse(ast.Module(node.body, [])))
    return names


def metrics_fields(source: str) -> int:
    """Count the fields of CompilationMetrics."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef) and node.name == "CompilationMetrics":
            return sum(isinstance(part, ast.AnnAssign) for part in node.body)
    return 0


def parameters(source: str, function: str) -> str:
    """Write a function's parameters."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef) and node.name == function:
            return ", ".join(a.arg for a in [*node.args.args, *node.args.kwonlyargs])
    return "missing"


def examine(wheel: str) -> dict[str, str]:
    """Answer for one wheel."""
    with zipfile.ZipFile(wheel) as archive:
        files = {
            name: archive.read(name).decode() for name in archive.namelist() if SOURCES.match(name)
        }
        registry = "torch/_dynamo/graph_break_registry.json" in archive.namelist()
    answers = {"wheel": wheel.rsplit("/", 1)[-1].split("-")[1]}
    for capability, (module, attribute, _, _) in NAMES.items():
        path = module.replace(".", "/")
        source = files.get(f"{path}.py") or files.get(f"{path}/__init__.py") or ""
        # A config module gets its _config when it is installed, at import.
        is_defined = attribute in defined_names(source) or (
            attribute == "_config" and "install_config_module" in source
        )
        answers[capability] = "yes" if is_defined else "no"
    for site, (path, pattern) in CALL_SITES.items():
        answers[site] = "yes" if re.search(pattern, files.get(path, "")) else "no"
    text = "\n".join(files.values())
    answers["metrics fields"] = str(metrics_fields(files["torch/_dynamo/utils.py"]))
    answers["registry"] = "yes" if registry else "no"
    stems = {name for name in TAPPED_ARTIFACTS if name in text}
    states = {n for n in TAPPED_ARTIFACTS if re.sub(r"_(hit|miss|bypass)$", "_{", n) in text}
    answers["artifacts"] = " ".join(sorted(stems | states))
    answers["trace_structured"] = parameters(
        files["torch/_logging/_internal.py"], "trace_structured"
    )
    answers["record hook called"] = str(text.count("log_compilation_event("))
    answers["trace_structured uses"] = str(text.count("trace_structured("))
    return answers


def main(wheels: list[str]) -> int:
    """Print one block a wheel."""
    for wheel in wheels:
        for question, answer in examine(wheel).items():
            print(f"{question:>24}  {answer}")
        print()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
