"""Import rules that import-linter cannot state: for tests, benchmarks and studies.

1. No test module imports another; what both need is in ``tests/factories``.
2. Nothing imports ``studies``, but tests of the studies and, for its data, ``studies.archives``.
3. Studies use Tailback as its users do: ``tailback`` itself, its modules, and what a package lists
   in ``__all__``. What they need from further inside is named in ``INSIDE``, and nothing else is.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

INSIDE = {
    # Algorithms of Birk and Zdornov (2009) that only the study of them runs, compiled in the core.
    "tailback._core",
    "tailback.fabric.core_errors",
    # Simulation of rank programs that no scenario describes, and the engine's own counts.
    "tailback.fabric.builders",
    "tailback.fabric.model",
    "tailback.simulation.execute",
    "tailback.simulation.prepare",
    "tailback.simulation.routes",
    "tailback.simulation.probes",
    "tailback.simulation.settings",
    "tailback.traffic.program",
    "tailback.traffic.transform",
    # Estimates from samples, before they are tables of a run.
    "tailback.remedy.proof",
    "tailback.telemetry.estimate",
    "tailback.telemetry.hashed",
    "tailback.telemetry.packet_ids",
    "tailback.telemetry.stages",
    # Figures in the style of the report.
    "tailback.report.figure",
    "tailback.report.figures.congested_fraction",
    "tailback.report.scales",
    # Analyses of port counters on counters of a simulated run.
    "tailback.port_counters.analysis",
    "tailback.port_counters.analysis.classes",
    "tailback.port_counters.analysis.evolution_run",
    "tailback.port_counters.analysis.evolution_tiers",
    "tailback.port_counters.analysis.figures",
    "tailback.port_counters.analysis.figures.style",
    "tailback.port_counters.analysis.rounds",
    "tailback.port_counters.analysis.study",
    "tailback.port_counters.readers.engine_run",
    "tailback.port_counters.readers.ldms_columns",
    "tailback.port_counters.schema",
}
"""Modules that are not public and that studies import."""


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
    below = module.split(".")[1:]
    if len(below) > 1:
        return False
    package = ROOT / "python" / Path(*module.split("."))
    return not name or not package.is_dir() or name in exported(package)


def tests_apart(root: Path = ROOT) -> Iterator[str]:
    """Rule 1."""
    for path in sorted((root / "tests").rglob("*.py")):
        for line, module, name in imports(path):
            if any(part.startswith("test_") for part in (*module.split("."), name)):
                yield f"{path.relative_to(root)}:{line}: imports a test module ({module} {name})"


def studies_apart(root: Path = ROOT) -> Iterator[str]:
    """Rule 2. `scripts/table_hashes.py` hashes what studies compute too."""
    for folder, allowed in (("python", ()), ("examples", ()), ("bench", ("studies.archives",))):
        for path in sorted((root / folder).rglob("*.py")):
            for line, module, _ in imports(path):
                if module.split(".")[0] == "studies" and not module.startswith(allowed or "!"):
                    yield f"{path.relative_to(root)}:{line}: imports {module}"


def studies_public(root: Path = ROOT) -> Iterator[str]:
    """Rule 3, and that INSIDE names nothing that is not needed."""
    needed = set()
    for path in sorted((root / "studies").rglob("*.py")):
        for line, module, name in imports(path):
            if module.split(".")[0] != "tailback" or public(module, name):
                continue
            inside = f"{module}.{name}" if module == "tailback" else module
            needed.add(inside)
            if inside not in INSIDE:
                yield f"{path.relative_to(root)}:{line}: {module} {name} is not public"
    for module in sorted(INSIDE - needed):
        yield f"scripts/import_rules.py: no study imports {module} any more"


def main() -> int:
    """Print what breaks a rule; 1 if anything does."""
    broken = [*tests_apart(), *studies_apart(), *studies_public()]
    for line in broken:
        print(line, file=sys.stderr)
    return bool(broken)


if __name__ == "__main__":
    sys.exit(main())
