"""What the import rules of tests, benchmarks and studies refuse; `make lint` applies them."""

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
        ("python/tailback/x.py", "from studies.zhu2015 import incast", True),
        ("bench/x.py", "from studies.zhu2015 import incast", True),
        ("bench/x.py", "from measuring import put", False),
        ("measuring/x.py", "from studies.zhu2015 import incast", True),
        ("studies/x.py", "from bench import engine", True),
        ("studies/x.py", "from measuring import put", False),
        ("studies/x.py", "from studies.zhu2015 import incast", False),
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
    faults = rules.studies_public(written(tmp_path, "studies/x.py", line))
    assert bool([text for text in faults if text.startswith("studies/")]) == broken


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
        module
        for module in rules.MEASURED_ALONE
        if not any(f"{u}.".startswith(f"{module}.") for u in used)
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
        ("use super::super::host::{self, Adapter};", True),
        ("use crate::host;\nfn at(it: host::Adapter) {}", True),
        ("use crate::*;\nfn at(it: Adapter) {}", True),
        ("fn at(it: crate::host::Adapter) {}", True),
        ("fn at() { crate::host::made_by_a_macro() }", True),
        ("use crate::host;", False),
        ("// crate::host::Adapter", False),
        ('const WHERE: &str = "crate::host::Adapter";', False),
        ("#[cfg(test)]\nmod tests {\n    use crate::host::Adapter;\n}", False),
        ("#[cfg(test)]\nfn at(it: crate::host::Adapter) {}\nfn up() {}", False),
        ("#[cfg(test)]\nuse crate::host::Adapter;\nuse super::Settings;", False),
        ("use super::Settings;\npub struct Port;", False),
    ],
)
def test_crate_files_use_each_other_one_way(  # type: ignore[no-untyped-def]
    rules, tmp_path: Path, low: str, broken: bool
) -> None:
    crate = "crates/engine/src"
    written(tmp_path, f"{crate}/lib.rs", "mod host;\npub mod switch;\npub use host::*;")
    written(tmp_path, f"{crate}/switch/port.rs", low)
    written(
        tmp_path,
        f"{crate}/switch/mod.rs",
        "mod port;\nmod settings;\npub use {settings::Settings, port::Port as P};",
    )
    written(tmp_path, f"{crate}/switch/settings.rs", "pub struct Settings;")
    written(
        tmp_path,
        f"{crate}/host.rs",
        "use crate::{switch::{P, port}, switch};\npub struct Adapter(P);",
    )
    assert bool([*rules.crates_one_way(tmp_path)]) == broken


@pytest.mark.parametrize(
    ("parent", "broken"),
    [
        ("mod child;\npub struct Shared;", False),
        ("mod child;\npub use child::Part;\npub struct Shared;", False),
        ("mod child;\npub use child::*;\npub struct Shared;", False),
        ("mod child;\nuse child::Part;\npub struct Shared(Part);", True),
        ("mod child;\nuse self::child::{Part as P};\npub struct Shared(P);", True),
        ("mod child;\npub use child::Part;\npub struct Shared(Part);", True),
        ("mod child;\npub use child::*;\npub struct Shared(Part);", True),
        ("mod child;\npub struct Shared(child::Part);", True),
        ("mod child;\npub struct Shared;\nfn run() { child::run() }", True),
        ("mod child;\npub struct Shared { child: u8 }\nfn run(it: Shared) { it.run() }", False),
        ("#[cfg(test)]\nmod child;\npub fn shared() {}\n#[cfg(test)]\nuse child::Part;", False),
    ],
)
@pytest.mark.parametrize("use", ["use super::Shared;", "use super::*;\ntype Up = Shared;"])
def test_parent_in_use_by_child_leaves_child_alone(  # type: ignore[no-untyped-def]
    rules, tmp_path: Path, use: str, parent: str, broken: bool
) -> None:
    written(tmp_path, "crates/any/src/lib.rs", "mod parent;\n")
    written(tmp_path, "crates/any/src/parent.rs", parent)
    written(
        tmp_path,
        "crates/any/src/parent/child.rs",
        f"{use}\npub struct Part(u8);\npub fn run() {{}}",
    )
    assert bool([*rules.crates_one_way(tmp_path)]) == broken
