"""Import rules that import-linter cannot state.

1. No test module imports another; what both need is in ``tests/factories``.
2. Nothing but tests imports ``studies``, and studies import no
   benchmark: what both need is in ``measuring``.
3. Studies use Tailback as its users do: ``tailback`` itself, its modules, those of
   ``PUBLIC_ROOMS``, and what a package at any depth lists in ``__all__``. One study has a part of
   the compiled core to itself (``CORE_STUDY``).
4. No module of the package imports one that imports it in turn, not even inside a function. What is
   imported for annotations only (``TYPE_CHECKING``) does not count.
5. Benchmarks use the public API, too, and the modules of ``MEASURED_ALONE``.
6. No file of a crate uses one that uses it in turn (``scripts/crate_imports.py``).
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import crate_imports

ROOT = Path(__file__).resolve().parent.parent

MEASURED_ALONE = {
    "tailback._core": "the compiled engine and readers, without what Python adds to them",
    "tailback.api.candidates": "which placements are tried, beside what all of them would give",
    "tailback.simulation.parallel.spread": "the batch script of workers, without a command line",
    "tailback.calibration.routes": "paths that hidden values of a machine are computed for",
    "tailback.lab.datapath": "estimates from real packets, and run times of programs, alone",
    "tailback.fabric.builders": "networks of any size, without a scenario",
    "tailback.fabric.degraded": "the hidden network of a blind case, with its slow cables",
    "tailback.fabric.lft": "forwarding tables of a hidden machine, as opensm writes them",
    "tailback.fabric.rates": "rates of a hidden machine's cables",
    "tailback.fabric.readers": "reading a network, alone",
    "tailback.lab": "setting up and taking down the lab",
    "tailback.placement": "mappings of other makers, in the terms of ours",
    "tailback.port_counters.targets": "ports for a collector without switches",
    "tailback.collector": "the collector's store and its page, without switches",
    "tailback.remedy.optimiser": "combinations of changes, for a search that tries all",
    "tailback.remedy.proof": "when a remedy counts as one, for a search that tries all",
    "tailback.remedy.screening": "screening, beside a search that tries all",
    "tailback.report.timeline": "how many rows the viewer draws",
    "tailback.simulation.prepare": "jobs of a hidden machine, beside those of the user",
    "tailback.simulation.parallel.task_folder": "simulations run in parallel, and their costs",
    "tailback.telemetry": "estimators one at a time, and what switches write, without an engine",
    "tailback.traffic.collectives": "which messages a collective is",
}
"""Inner modules that a benchmark may import, with those below them, and what it measures there."""


CORE_STUDY = "studies/birk_zdornov2009/permuted_flows.py"
"""Permutations on large trees: too slow in Python, and of no use to a command."""

PUBLIC_ROOMS = ("io", "names", "run", "scenario")
"""Packages all of whose modules users may import: what they write and read."""


def imports(path: Path) -> Iterator[tuple[int, str, str]]:
    """Line, module and name of every import; the name is empty for ``import module``."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                yield node.lineno, node.module, alias.name
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name, ""


def exported(package: Path) -> set[str]:
    """What a package lists in ``__all__``."""
    for node in ast.parse((package / "__init__.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return set(ast.literal_eval(node.value))
    return set()


def public(module: str, name: str) -> bool:
    """Whether users of Tailback may rely on this import."""
    package = ROOT / "python" / Path(*module.split("."))
    if package.is_dir():
        return not name or name in exported(package)
    parts = module.split(".")
    return parts[1:] != [] and len(parts) == 2 + (parts[1] in PUBLIC_ROOMS) and parts[1][0] != "_"


def tests_apart(root: Path = ROOT) -> Iterator[str]:
    """Rule 1."""
    for path in sorted((root / "tests").rglob("*.py")):
        for line, module, name in imports(path):
            if any(part.startswith("test_") for part in (*module.split("."), name)):
                yield f"{path.relative_to(root)}:{line}: imports a test module ({module} {name})"


def studies_apart(root: Path = ROOT) -> Iterator[str]:
    """Rule 2."""
    refused = dict.fromkeys(("python", "examples", "bench", "measuring"), "studies") | {
        "studies": "bench"
    }
    for folder, package in refused.items():
        for path in sorted((root / folder).rglob("*.py")):
            for line, module, _ in imports(path):
                if module.split(".")[0] == package:
                    yield f"{path.relative_to(root)}:{line}: imports {module}"


def studies_public(root: Path = ROOT) -> Iterator[str]:
    """Rule 3."""
    for path in sorted((root / "studies").rglob("*.py")):
        for line, module, name in imports(path):
            core = (module, name) == ("tailback", "_core") and str(path).endswith(CORE_STUDY)
            if module.split(".")[0] == "tailback" and not core and not public(module, name):
                yield f"{path.relative_to(root)}:{line}: {module} {name} is not public"


def bench_public(root: Path = ROOT) -> Iterator[str]:
    """Rule 5."""
    for path in sorted((root / "bench").rglob("*.py")):
        for line, module, name in imports(path):
            inner = f"{module}.{name}" if module == "tailback" else module
            if (
                module.split(".")[0] == "tailback"
                and not public(module, name)
                and not any(f"{inner}.".startswith(f"{measured}.") for measured in MEASURED_ALONE)
            ):
                yield f"{path.relative_to(root)}:{line}: {module} {name} is not public"


def no_circles(root: Path = ROOT) -> Iterator[str]:
    """Rule 4."""
    files = sorted((root / "python" / "tailback").rglob("*.py"))
    modules = {_module(path, root): path for path in files}
    graph = {
        module: {
            target
            for name in _run_time_imports(path)
            if (target := name if name in modules else name.rpartition(".")[0]) in modules
        }
        - {module}
        for module, path in modules.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        yield "modules import each other: " + " <- ".join(error.args[1])


def crates_one_way(root: Path = ROOT) -> Iterator[str]:
    """Rule 6."""
    for folder in sorted(root.glob("crates/*/src")):
        for files in crate_imports.circles(crate_imports.graph(folder)):
            yield f"{folder.relative_to(root)}: files use each other: {', '.join(files)}"


def _module(path: Path, root: Path) -> str:
    return ".".join(path.relative_to(root / "python").with_suffix("").parts).removesuffix(
        ".__init__"
    )


def _run_time_imports(path: Path) -> Iterator[str]:
    """What a module imports when it is loaded or runs, names of modules included."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    guarded = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for part in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in guarded:
            continue
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def main() -> int:
    """Print violations of the rules; return 1 if there are any."""
    broken = [
        *tests_apart(),
        *studies_apart(),
        *studies_public(),
        *bench_public(),
        *no_circles(),
        *crates_one_way(),
    ]
    for line in broken:
        print(line, file=sys.stderr)
    return bool(broken)


if __name__ == "__main__":
    sys.exit(main())
