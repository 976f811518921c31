"""Spack recipe of this checkout: ``spack repo add packaging/spack && spack install tailback``."""

from pathlib import Path

from spack.package import (
    PythonPackage,
    copy,
    depends_on,
    join_path,
    license,
    mkdirp,
    run_before,
    version,
)


class Tailback(PythonPackage):
    """Finds where traffic backs up in a supercomputer's network, says why, and proves the fix."""

    git = f"file://{Path(__file__).resolve().parents[4]}"

    license("Apache-2.0")

    version("main", branch="main")

    depends_on("c", type="build")
    depends_on("rust@1.88:", type="build")
    depends_on("py-maturin@1.16.0", type="build")
    depends_on("otf2@3", type="build")

    depends_on("python@3.11:", type=("build", "run"))
    depends_on("py-click@8.1:8", type=("build", "run"))
    depends_on("py-jinja2@3.1:3", type=("build", "run"))
    depends_on("py-markupsafe@2.1:3", type=("build", "run"))
    depends_on("py-matplotlib@3.9:3", type=("build", "run"))
    depends_on("py-numpy@2.0:2", type=("build", "run"))
    depends_on("py-polars@1.20:2", type=("build", "run"))
    depends_on("py-pydantic@2.9:2", type=("build", "run"))
    depends_on("py-pymetis@2025.1:", type=("build", "run"))
    depends_on("py-pyyaml@6.0:6", type=("build", "run"))
    depends_on("py-rich@13.9:15", type=("build", "run"))
    depends_on("py-scipy@1.14:1", type=("build", "run"))

    @run_before("install")
    def place_otf2(self):
        """Put the OTF2 library where the build would download it to otherwise."""
        place = join_path("python", "tailback", "_otf2")
        mkdirp(place)
        copy(join_path(self.spec["otf2"].prefix.lib, "libotf2.so"), place)
