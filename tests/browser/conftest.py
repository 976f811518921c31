"""A browser, and a report to look at."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tailback.report import write_report
from tests.factories import webdriver
from tests.factories.rank_times import make_measured
from tests.factories.report_data import make_diagnosis, make_run


@pytest.fixture(scope="module")
def browser() -> Iterator[webdriver.Browser]:
    """A browser of its own for each file of tests."""
    with webdriver.Browser() as window:
        yield window


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a small run, with a remedy."""
    run = make_run()
    return write_report(
        tmp_path_factory.mktemp("report") / "plain.html",
        run,
        make_diagnosis(run),
        after=make_run(tiled=True),
        files={"rankfile": "rank 0=a slot=0\n"},
    )


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a small run that was measured."""
    run = make_run()
    return write_report(
        tmp_path_factory.mktemp("report") / "measured.html",
        run,
        make_diagnosis(run),
        measured=make_measured(run),
    )
