"""The import rules of tests, benchmarks and studies: what they refuse, and that they hold."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from tests.factories.repository import ROOT


@pytest.fixture
def rules(monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    monkeypatch.syspath_prepend(ROOT / "scripts")
    return importlib.import_module("import_rules")


def written(root: Path, path: str, text: str) -> Path:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)
    return root


def test_the_rules_hold(rules) -> None:  # type: ignore[no-untyped-def]
    assert rules.main() == 0


@pytest.mark.parametrize(
    ("line", "broken"),
    [
        ("from tests.unit.cli.test_cli import refused", True),
        ("from tests.unit.cli import test_cli", True),
        ("import test_cli", True),
        ("from tests.factories.cli import refused", False),
    ],
)
def test_tests_import_no_tests(rules, tmp_path: Path, line: str, broken: bool) -> None:  # type: ignore[no-untyped-def]
    assert bool([*rules.tests_apart(written(tmp_path, "tests/unit/test_x.py", line))]) == broken


@pytest.mark.parametrize(
    ("path", "line", "broken"),
    [
        ("python/tailback/x.py", "import studies", True),
        ("python/tailback/x.py", "from studies.archives import torus", True),
        ("bench/x.py", "from studies.archives import torus", True),
        ("bench/x.py", "from measuring import put", False),
        ("measuring/x.py", "from studies.archives import torus", True),
        ("studies/x.py", "from bench import engine", True),
        ("studies/x.py", "from measuring import put", False),
        ("studies/x.py", "from studies.archives import torus", False),
    ],
)
def test_benchmarks_and_studies_stay_apart(  # type: ignore[no-untyped-def]
    rules, tmp_path: Path, path: str, line: str, broken: bool
) -> None:
    assert bool([*rules.studies_apart(written(tmp_path, path, line))]) == broken


@pytest.mark.parametrize(
    ("line", "broken"),
    [
        ("import tailback as tb", False),
        ("from tailback import Run, simulate", False),
        ("from tailback.units import percent", False),
        ("from tailback.fluid import max_min", False),
        ("from tailback.fluid import translate_core_error", True),
        ("from tailback.fluid.rates import max_min", True),
        ("import tailback.diagnosis.confidence", True),
    ],
)
def test_studies_use_what_is_public(rules, tmp_path: Path, line: str, broken: bool) -> None:  # type: ignore[no-untyped-def]
    found = rules.studies_public(written(tmp_path, "studies/x.py", line))
    assert bool([text for text in found if text.startswith("studies/")]) == broken


@pytest.mark.parametrize(
    ("line", "broken"),
    [
        ("from tailback.simulation import prepare", False),
        ("from tailback.simulation.execute import execute", True),
        ("from tailback import _core", False),
        ("from tailback import _other", True),
        ("from tailback.telemetry.likelihood import fit", False),
        ("from tailback.telemetry_page import fit", False),  # a module of the package itself
        ("from tailback.report.html import render", True),
    ],
)
def test_benchmarks_use_what_is_public_or_measured_alone(  # type: ignore[no-untyped-def]
    rules, tmp_path: Path, line: str, broken: bool
) -> None:
    assert bool([*rules.bench_public(written(tmp_path, "bench/x.py", line))]) == broken


def test_every_exception_for_benchmarks_is_used(rules) -> None:  # type: ignore[no-untyped-def]
    used = {
        f"{module}.{name}"
        for path in (ROOT / "bench").rglob("*.py")
        for _, module, name in rules.imports(path)
        if not rules.public(module, name)
    }
    idle = [
        one for one in rules.MEASURED_ALONE if not any(f"{u}.".startswith(f"{one}.") for u in used)
    ]
    assert idle == []


@pytest.mark.parametrize(
    ("line", "broken"),
    [
        ("from tailback import low", False),
        ("def write():\n    from tailback.high import draw\n", True),
        ("def write():\n    import tailback.high\n", True),
        ("if TYPE_CHECKING:\n    from tailback.high import Drawing\n", False),
    ],
)
def test_no_import_climbs_back(rules, tmp_path: Path, line: str, broken: bool) -> None:  # type: ignore[no-untyped-def]
    written(tmp_path, "python/tailback/high.py", "from tailback.middle import Study")
    written(tmp_path, "python/tailback/low.py", "")
    assert bool([*rules.no_circles(written(tmp_path, "python/tailback/middle.py", line))]) == broken


@pytest.mark.parametrize(
    ("low", "broken"),
    [
        ("use crate::host::Adapter;", True),
        ("fn at(it: crate::host::Adapter) {}", True),
        ("// crate::host::Adapter", False),
        ("#[cfg(test)]\nmod tests {\n    use crate::host::Adapter;\n}", False),
        ("use super::Settings;\npub struct Port;", False),
    ],
)
def test_files_of_the_engine_use_each_other_one_way(  # type: ignore[no-untyped-def]
    rules, tmp_path: Path, low: str, broken: bool
) -> None:
    engine = "crates/engine/src"
    written(tmp_path, f"{engine}/lib.rs", "mod host;\npub mod switch;\npub use host::Settings;")
    written(tmp_path, f"{engine}/switch/port.rs", low)
    written(tmp_path, f"{engine}/switch/mod.rs", "mod port;\npub use port::{Port as P, self};")
    written(
        tmp_path,
        f"{engine}/host.rs",
        "use crate::{switch::{P, port}, switch};\npub struct Adapter(P);\npub struct Settings;",
    )
    assert bool([*rules.engine_one_way(tmp_path)]) == broken
