"""The scripts beside the package: what set-up refuses, what a wheel must hold."""

from __future__ import annotations

import importlib.util
import os
import pwd
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import tailback
from tailback.errors import TraceError
from tailback.traffic.readers.otf2 import reader as otf2
from tailback.traffic.readers.otf2.reader import library_path
from tests.factories.repository import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def script(name: str) -> ModuleType:
    """A Python file of scripts/ as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def program(path: Path, text: str) -> None:
    """An executable shell script."""
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(0o755)


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A checkout without environment; its bin/ has a Python, all tools, and no network client."""
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts", ignore=lambda *_: ["__pycache__"])
    for name in ("Cargo.toml", "Cargo.lock", "pyproject.toml", *map(str, ROOT.glob("*.lock"))):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "crates").mkdir()
    (tmp_path / "bin").mkdir()
    program(tmp_path / "bin" / "python3.11", f'exec {sys.executable} "$@"')
    program(tmp_path / "bin" / "cc", "exit 0")
    program(tmp_path / "bin" / "cargo", "exit 0")
    program(tmp_path / "bin" / "rustc", "echo 'rustc 1.999.0 (stand-in)'")
    program(tmp_path / "bin" / "uv", "echo downloads >&2; exit 9")
    return tmp_path


def set_up(machine: Path) -> str:
    """What set-up says on a machine where it cannot succeed."""
    environment = {**os.environ, "PATH": f"{machine / 'bin'}:/usr/bin:/bin", "PYTHON": "python3.11"}
    ended = subprocess.run(
        [machine / "scripts" / "setup.sh", "run"], env=environment, capture_output=True, text=True
    )
    assert ended.returncode != 0
    return ended.stderr


def test_an_equipped_machine_reaches_the_download(machine: Path) -> None:
    assert "downloads" in set_up(machine)


@pytest.mark.parametrize(
    ("name", "stand_in", "expected"),
    [
        ("cc", "echo no crt1.o >&2; false", "crt1.o\nsetup: remedy: apt-get install gcc libc6-dev"),
        ("rustc", "echo 'rustc 1.63.0'", "Rust 1.63.0 is too old"),
        ("rustc", "exit 1", "does not run"),
        ("python3.11", "exit 1", "no Python of at least 3.11"),
    ],
)
def test_prerequisites_are_checked_before_any_download(
    machine: Path, name: str, stand_in: str, expected: str
) -> None:
    program(machine / "bin" / name, stand_in)
    output = set_up(machine)
    assert expected in output and "remedy: " in output and "downloads" not in output


def test_the_gate_unsets_a_machines_variables(tmp_path: Path) -> None:
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci")
    program(tmp_path / "make", "env")
    taken = {"PYTHONDONTWRITEBYTECODE": "1", "LC_ALL": "C", "TZ": "UTC", "XDG_CACHE_HOME": "/x"}
    kept = {"PIP_CERT": "/y", "HOME": "/z"}
    environment = {**taken, **kept, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    ended = subprocess.run(
        [tmp_path / ".ci" / "run"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    names = {line.partition("=")[0] for line in ended.stdout.splitlines()}
    assert not names & set(taken) and names >= set(kept)


def test_tests_have_their_own_home_and_folder() -> None:
    assert Path.home() != Path(pwd.getpwuid(os.getuid()).pw_dir)
    ours = Path(os.environ["TAILBACK_TEST_HOME"])
    folders = [Path.home(), Path(tempfile.gettempdir()), Path(os.environ["XDG_CONFIG_HOME"])]
    assert all(folder.is_relative_to(ours) and folder.is_dir() for folder in folders)


@pytest.mark.slow
def test_what_tests_import_finds_no_other_home(tmp_path: Path) -> None:
    """Also where a folder with a conftest.py of its own is named on the command line."""
    environment = {k: v for k, v in os.environ.items() if k != "TAILBACK_TEST_HOME"}
    environment = {k: v for k, v in environment.items() if not k.startswith(("XDG_", "PYTEST_"))}
    command = [sys.executable, "-m", "pytest", "--collect-only", "-p", "no:cacheprovider"]
    subprocess.run(
        [*command, "tests/browser/test_evolution.py"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        check=True,
        env=environment | {"HOME": str(tmp_path), "TMPDIR": str(tmp_path)},
    )
    assert list(tmp_path.iterdir()) == []


def test_the_version_is_stated_in_one_place() -> None:
    cargo = tomllib.loads((ROOT / "Cargo.toml").read_text(encoding="utf-8"))
    version = cargo["workspace"]["package"]["version"]
    assert PROJECT["dynamic"] == ["version"]
    command = [sys.executable, "-m", "tailback", "--version"]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert tailback.__version__ == version and output == f"tailback, version {version}\n"


def test_the_package_description_links_to_no_file() -> None:
    text = (ROOT / PROJECT["readme"]).read_text(encoding="utf-8")
    assert "tailback diagnose" in text
    assert not [link for link in re.findall(r"\]\(([^)]*)\)", text) if "://" not in link]


def test_the_otf2_library_fits_any_python() -> None:
    # Nothing in its name or place depends on a version of Python, and no package is imported.
    path = library_path()
    assert path.relative_to(Path(tailback.__file__).parent) == Path("_otf2/libotf2.so")
    assert "RWTH Aachen" in (path.parent / "COPYING").read_text(encoding="utf-8")
    assert not [name for name in PROJECT["dependencies"] if name.startswith("otf2")]
    load = f"ctypes.CDLL({str(path)!r}).OTF2_Reader_Open"
    look = f"import ctypes, sys; {load}; print('otf2' in sys.modules)"
    for python in {sys.executable, shutil.which("/usr/bin/python3") or sys.executable}:
        ended = subprocess.run([python, "-c", look], capture_output=True, text=True)
        assert ended.stdout == "False\n", ended.stderr


def test_an_installation_without_the_otf2_library_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otf2, "_LIBRARY", tmp_path / "libotf2.so")
    (tmp_path / "traces.otf2").write_bytes(b"")
    with pytest.raises(TraceError, match="library is missing") as caught:
        otf2.load(tmp_path)
    assert caught.value.remedy is not None and "make setup" in caught.value.remedy


def test_compiler_flags_keep_those_of_the_user(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backend = script("build_backend")
    monkeypatch.setenv("CARGO_HOME", "/home/builder/.cargo")
    monkeypatch.setenv("RUSTFLAGS", "-C target-cpu=native")
    monkeypatch.setenv("CARGO_ENCODED_RUSTFLAGS", "")
    sources = "/home/builder/.cargo/registry/src/index.example.org-0123456789abcdef"
    for _ in range(2):  # the second time adds nothing
        backend.map_paths([sources])
        flags = os.environ["CARGO_ENCODED_RUSTFLAGS"].split("\x1f")
        assert flags[:2] == ["-C", "target-cpu=native"] and len(flags) == 5
        assert "--remap-path-prefix=/home/builder/.cargo=cargo" in flags
        # The compiler takes the last one that fits.
        assert flags[-1] == f"--remap-path-prefix={sources}=dependencies"


def test_the_compiled_module_names_no_build_path() -> None:
    core = Path(str(import_module("tailback._core").__file__)).read_bytes()
    assert script("check_wheel").build_places(core) == []
    # The home of these tests is another one.
    assert f"{pwd.getpwuid(os.getuid()).pw_dir}/".encode() not in core


def test_a_library_without_its_licence_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "_otf2").mkdir()
    (tmp_path / "_otf2" / "_otf2.cpython-311.so").write_bytes(b"")
    with pytest.raises(SystemExit, match="remedy: make setup"):
        script("build_backend").place_library([tmp_path])


def shared_library(content: bytes, machine: int = 62) -> bytes:
    """The header of a shared library for x86-64 (62) or another machine, and some content."""
    return b"\x7fELF".ljust(18, b"\0") + machine.to_bytes(2, "little") + content


def wheel(folder: Path, core: bytes, description: str, tag: str) -> Path:
    """A file like a wheel."""
    path = folder / f"tailback-1.0.0-cp311-abi3-{tag}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("tailback/_core.abi3.so", shared_library(core))
        archive.writestr("tailback/_otf2/libotf2.so", shared_library(b"GLIBC_2.14"))
        archive.writestr("tailback/_otf2/COPYING", "licence")
        archive.writestr("tailback-1.0.0.dist-info/METADATA", description)
    return path


def test_a_wheel_is_checked_for_forbidden_content(tmp_path: Path) -> None:
    faults = script("check_wheel").faults
    good = wheel(tmp_path, b"GLIBC_2.28\0dependencies/pyo3-1.0/x.rs", "", "manylinux_2_28_x86_64")
    assert faults(good) == []
    index = "index.example.org-0123456789abcdef/"
    core = f"GLIBC_2.34\0{Path.home()}/.cargo/registry/src/{index}pyo3-1.0/x.rs".encode()
    report = "\n".join(faults(wheel(tmp_path, core, "[x](docs/x.md)", "linux_x86_64")))
    wrong = ("not tagged", "needs glibc 2.34", str(Path.home()), index, "links to docs/x.md")
    for expected in wrong:
        assert expected in report


def test_a_wheel_for_another_machine_is_refused(tmp_path: Path) -> None:
    """As a cross build makes it that finds the OTF2 library of the building machine."""
    report = script("check_wheel").faults(wheel(tmp_path, b"", "", "manylinux_2_28_aarch64"))
    assert "tailback/_otf2/libotf2.so is for x86_64" in report
    assert script("check_wheel").architecture(shared_library(b"", 183)) == "aarch64"
    assert script("check_wheel").architecture(b"a text") == "no machine (it is no ELF file)"


def spack_specs() -> list[str]:
    """What the Spack recipe depends on, as it states it to Spack."""
    specs: list[str] = []
    spack = ModuleType("spack.package")
    for name in ("copy", "join_path", "license", "mkdirp", "version"):
        setattr(spack, name, lambda *a, **k: None)
    vars(spack).update(
        PythonPackage=object,
        run_before=lambda phase: lambda method: method,
        depends_on=lambda spec, type: specs.append(spec),
    )
    recipe = ROOT / "packaging" / "spack" / "packages" / "tailback" / "package.py"
    code = compile(recipe.read_text(encoding="utf-8"), str(recipe), "exec")
    modules = {"spack": ModuleType("spack"), "spack.package": spack}
    with pytest.MonkeyPatch.context() as patch:
        for name, module in modules.items():
            patch.setitem(sys.modules, name, module)
        exec(code, {"__file__": str(recipe), "__name__": "recipe"})
    return specs


def test_spack_recipe_has_what_the_package_needs() -> None:
    """Spack's upper bounds are inclusive: below 9 is up to 8."""
    wanted = set()
    for requirement in PROJECT["dependencies"]:
        name, low, high = re.fullmatch(
            r"([a-z0-9]+)>=([0-9.]+)(?:,<([0-9]+))?", requirement
        ).groups()  # type: ignore[union-attr]
        wanted.add(f"py-{name}@{low}:{int(high) - 1 if high else ''}")
    rust = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["rust-version"]
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    python = PROJECT["requires-python"].removeprefix(">=")
    wanted |= {f"py-{each.replace('==', '@')}" for each in build}
    wanted |= {"c", "otf2@3", f"rust@{rust}:", f"python@{python}:"}
    assert sorted(spack_specs()) == sorted(wanted)
