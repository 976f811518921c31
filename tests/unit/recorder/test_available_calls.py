"""Which calls an MPI library has: asked of compilers whose header and library disagree."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from tailback.recorder.build import available_calls
from tailback.recorder.calls import calls

HEADER = """
#define MPI_VERSION 3
typedef int MPI_Comm, MPI_Datatype, MPI_Request, MPI_Info, MPI_Op, MPI_Win;
typedef long MPI_Count, MPI_Aint;
int MPI_Barrier(MPI_Comm comm); int PMPI_Barrier(MPI_Comm comm);
int MPI_Pready(int partition, MPI_Request request);
int PMPI_Pready(int partition, MPI_Request request);
int MPI_Start(MPI_Request *request); int PMPI_Start(MPI_Request *request);
int MPI_Pready_range(int low, int high, MPI_Request *request);
int PMPI_Pready_range(int low, int high, MPI_Request *request);
int MPI_Win_sync(MPI_Win win);
/* MPI_Win_free(win) is only talked about. */
"""
LIBRARY = """
int PMPI_Barrier(int c) { return c; } int MPI_Barrier(int c) { return c; }
int PMPI_Pready(int p, int r) { return p + r; } int MPI_Pready(int p, int r) { return p + r; }
int PMPI_Pready_range(int l, int h, int *r) { return l + h + *r; }
int MPI_Pready_range(int l, int h, int *r) { return l + h + *r; }
"""


@pytest.mark.tools
def test_the_library_is_asked_and_not_its_version(tmp_path: Path) -> None:
    if not shutil.which("cc"):
        pytest.skip("needs a C compiler")
    (tmp_path / "mpi.h").write_text(HEADER)
    (tmp_path / "library.c").write_text(LIBRARY)
    mpicc = tmp_path / "mpicc"
    # The library goes along only where something is linked.
    mpicc.write_text(
        f"#!{sys.executable}\nimport os, sys\n"
        f'more = [] if "-E" in sys.argv else ["{tmp_path}/library.c"]\n'
        f'os.execvp("cc", ["cc", "-I{tmp_path}", *sys.argv[1:], *more])\n'
    )
    mpicc.chmod(0o755)
    available_names = available_calls(str(mpicc), calls(), tmp_path)
    # MPI_Start has no entry point, MPI_Pready_range other arguments, MPI_Win_sync no PMPI name.
    assert {call.name for call in available_names} == {"MPI_Barrier", "MPI_Pready"}


@pytest.mark.tools
@pytest.mark.parametrize(("compiler", "has"), [("mpicc", False), ("mpicc.mpich", True)])
def test_installed_libraries(tmp_path: Path, compiler: str, has: bool) -> None:
    if not shutil.which(compiler):
        pytest.skip("needs Debian packages libopenmpi-dev, libmpich-dev")
    names = {call.name for call in available_calls(compiler, calls(), tmp_path)}
    assert {"MPI_Send", "MPI_Ialltoallw", "MPI_Rget_accumulate"} <= names
    if os.path.realpath(shutil.which(compiler) or "").endswith(("opal_wrapper", "mpicc.mpich")):
        # Open MPI 4 and MPICH 4 of Debian.
        assert ("MPI_Alltoallv_init" in names) == ("MPI_Psend_init" in names) == has


@pytest.mark.tools
def test_a_compiler_that_fails_has_no_calls(tmp_path: Path) -> None:
    assert available_calls("false", calls(), tmp_path) == []
