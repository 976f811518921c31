"""The home and the temporary folder of the whole test run: nothing is left in those of the user."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# No test may depend on how fast the machine is, or on what else runs there. Each run draws other
# examples: those of the gate find in one run what a tenth of the inputs shows (1 - 0.9**25 = 0.93).
for profile, examples in (("gate", 25), ("thorough", 200)):
    settings.register_profile(
        profile,
        deadline=None,
        max_examples=examples,
        suppress_health_check=[HealthCheck.too_slow],
    )
settings.load_profile("gate")

# Their asserts say what differs, as those of test modules do.
pytest.register_assert_rewrite("tests.factories")

OURS = "TAILBACK_TEST_HOME"
"""Names the folder to worker processes, which share the one of the process that started them."""


def _own_home() -> Path | None:
    """Give this process, and all that tests start, a home of its own; None in a worker process.

    Programs that tests drive (browser, MPI launcher, matplotlib) keep settings, caches and sockets
    there. The path is short, as those of sockets must be.
    """
    if OURS in os.environ:
        return None
    # Where rustup and cargo are, if a test builds something: their default is below the old home.
    for variable, folder in (("CARGO_HOME", ".cargo"), ("RUSTUP_HOME", ".rustup")):
        os.environ.setdefault(variable, str(Path.home() / folder))
    root = Path(tempfile.mkdtemp(prefix="tailback-tests-"))
    os.environ[OURS] = str(root)
    for variable, folder in (
        ("HOME", "home"),
        ("XDG_CONFIG_HOME", "home/.config"),
        ("XDG_CACHE_HOME", "home/.cache"),
        ("XDG_DATA_HOME", "home/.local/share"),
        ("XDG_STATE_HOME", "home/.local/state"),
        ("XDG_RUNTIME_DIR", "run"),
        ("TMPDIR", "tmp"),
    ):
        (root / folder).mkdir(parents=True, mode=0o700)
        os.environ[variable] = str(root / folder)
    # Open MPI starts no program as root without both.
    for variable in ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"):
        os.environ[variable] = "1"
    tempfile.tempdir = None  # read TMPDIR again
    return root


# Before any other conftest.py is loaded: what those import looks for its settings at once.
_ROOT = _own_home()
_FAILED = pytest.StashKey[bool]()


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Remember whether files of failed tests are worth a look."""
    session.config.stash[_FAILED] = exitstatus not in (
        pytest.ExitCode.OK,
        pytest.ExitCode.NO_TESTS_COLLECTED,
    )


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the folder, unless tests failed: then say where their files are."""
    if _ROOT is None:
        return
    if config.stash.get(_FAILED, False):
        print(f"files of the tests are kept in {_ROOT}", file=sys.stderr)
    else:
        shutil.rmtree(_ROOT, ignore_errors=True)
