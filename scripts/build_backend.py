"""Builds Tailback with maturin, and does two things that maturin leaves out.

Every build uses this module: `make setup`, `make wheel` and a plain `pip install .`. It adds two
things to maturin's PEP 517 interface:

* The OTF2 C library, as `tailback/_otf2/libotf2.so` beside its licence. `scripts/otf2-library.sh`
  puts it into a checkout; without that, the build asks for the Python package `otf2` and takes the
  library from there.
* Paths of the build machine are mapped away, so that the compiled module names neither a home
  directory nor the host of a package index.

    python scripts/build_backend.py FOLDER

copies the library from FOLDER, in which the package `otf2` is installed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PLACE = ROOT / "python" / "tailback" / "_otf2"
LIBRARY = PLACE / "libotf2.so"
REQUIREMENT = next(
    line.split()[0]
    for line in (ROOT / "scripts" / "otf2-requirements.lock").read_text().splitlines()
    if line.startswith("otf2==")
)

Settings = dict[str, Any] | None


def place_library(folders: Iterable[Path]) -> None:
    """Copy library and licence from the first of the folders that has package `otf2` installed."""
    for folder in folders:
        libraries = sorted(folder.glob("_otf2/_otf2*.so"))
        licences = sorted(folder.glob("otf2-*.dist-info/**/COPYING"))
        if libraries and licences:
            PLACE.mkdir(exist_ok=True)
            shutil.copyfile(licences[0], PLACE / "COPYING")
            # Replaced atomically, because a process may have the old library open.
            new = LIBRARY.with_suffix(".new")
            shutil.copyfile(libraries[0], new)
            new.replace(LIBRARY)
            return
    raise SystemExit(f"the OTF2 library is missing; remedy: make setup, or install {REQUIREMENT}")


def source_folders() -> list[str]:
    """Folders that hold the sources of the crates we depend on; cargo downloads what is missing.

    Cargo names them after the host of the package index.
    """
    command = ["cargo", "metadata", "--locked", "--format-version", "1"]
    metadata = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
    manifests = (Path(package["manifest_path"]) for package in json.loads(metadata)["packages"])
    folders = {str(manifest.parent.parent) for manifest in manifests}
    return sorted(folder for folder in folders if not folder.startswith(f"{ROOT}/"))


def map_paths(folders: Iterable[str]) -> None:
    """Have the compiler write neutral paths instead of those of this machine.

    Args:
        folders: Those of :func:`source_folders`.
    """
    cargo_home = os.environ.get("CARGO_HOME") or str(Path.home() / ".cargo")
    # The compiler uses the last mapping that matches.
    flags = [
        f"--remap-path-prefix={cargo_home}=cargo",
        f"--remap-path-prefix={ROOT}=tailback",
        *(f"--remap-path-prefix={folder}=dependencies" for folder in folders),
    ]
    encoded = os.environ.get("CARGO_ENCODED_RUSTFLAGS")
    stated = encoded.split("\x1f") if encoded else os.environ.get("RUSTFLAGS", "").split()
    new = [flag for flag in flags if flag not in stated]
    os.environ["CARGO_ENCODED_RUSTFLAGS"] = "\x1f".join([*stated, *new])


def _requirements(ask: Callable[[Settings], list[str]], settings: Settings) -> list[str]:
    return [*ask(settings), *([] if LIBRARY.is_file() else [REQUIREMENT])]


def _build(build: Callable[..., str], folder: str, settings: Settings, metadata: str | None) -> str:
    if not LIBRARY.is_file():
        place_library(Path(entry or ".") for entry in sys.path)
    map_paths(source_folders())
    return build(folder, settings, metadata)


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    """Requirements for building a wheel, besides maturin."""
    import maturin

    return _requirements(maturin.get_requires_for_build_wheel, config_settings)


def get_requires_for_build_editable(config_settings: Settings = None) -> list[str]:
    """Requirements for building an editable installation, besides maturin."""
    import maturin

    return _requirements(maturin.get_requires_for_build_editable, config_settings)


def get_requires_for_build_sdist(config_settings: Settings = None) -> list[str]:
    """Requirements for building a source archive, besides maturin."""
    import maturin

    return maturin.get_requires_for_build_sdist(config_settings)


def prepare_metadata_for_build_wheel(folder: str, config_settings: Settings = None) -> str:
    """Write the metadata of a wheel."""
    import maturin

    return maturin.prepare_metadata_for_build_wheel(folder, config_settings)


def prepare_metadata_for_build_editable(folder: str, config_settings: Settings = None) -> str:
    """Write the metadata of an editable installation."""
    import maturin

    return maturin.prepare_metadata_for_build_editable(folder, config_settings)


def build_wheel(
    folder: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    """Build a wheel into the folder; return its file name."""
    import maturin

    return _build(maturin.build_wheel, folder, config_settings, metadata_directory)


def build_editable(
    folder: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    """Build an editable installation; return the file name of its wheel."""
    import maturin

    return _build(maturin.build_editable, folder, config_settings, metadata_directory)


def build_sdist(folder: str, config_settings: Settings = None) -> str:
    """Write a source archive into the folder; return its file name."""
    import maturin

    return maturin.build_sdist(folder, config_settings)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    place_library([Path(sys.argv[1])])
