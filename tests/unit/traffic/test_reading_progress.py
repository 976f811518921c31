"""Progress that readers of large files report."""

from __future__ import annotations

from pathlib import Path

from tailback.io.progress import reported, step
from tailback.traffic.readers import read_trace
from tailback.traffic.readers.text_lines import pieces
from tests.factories import dumpi_traces
from tests.factories.otf2_traces import call, writing


def test_a_text_reports_the_share_read(tmp_path: Path) -> None:
    path = tmp_path / "run.goal"
    path.write_bytes(b"abc\n" * 4)
    seen: list[tuple[str, float]] = []
    with reported(lambda what, share: seen.append((what, share))):
        assert b"".join(pieces(path, 4)) == b"abc\n" * 4
    # A piece of four bytes, with its line end, then the next line.
    assert seen == [("reading run.goal", share) for share in (0.5, 1.0)]
    assert step() is None


def test_one_file_per_rank_reports_each_file(tmp_path: Path) -> None:
    dumpi_traces.write(tmp_path, [], [], [], [])
    seen: list[float] = []
    with reported(lambda _, share: seen.append(share)):
        read_trace(tmp_path)
    assert seen == [0.0, 0.25, 0.5, 0.75]


def test_a_trace_reports_while_being_read(tmp_path: Path) -> None:
    script = call("MPI_Send", 1, ("mpi_send", 0, "MPI_COMM_WORLD", 1, 8))
    path = writing(tmp_path)([script, script, script])
    seen: list[tuple[str, float]] = []
    with reported(lambda what, share: seen.append((what, share))):
        read_trace(path)
    # Reports are at least a tenth of a second apart; the first location is always reported.
    assert seen
    assert all(what == "reading traces.otf2" and 0 < share <= 1 for what, share in seen)


def test_errors_of_the_progress_display_are_raised(tmp_path: Path) -> None:
    script = call("MPI_Send", 1, ("mpi_send", 0, "MPI_COMM_WORLD", 1, 8))
    path = writing(tmp_path)([script, script])

    def fails(_what: str, _share: float) -> None:
        raise KeyError("shown")

    with reported(fails):
        try:
            read_trace(path)
        except KeyError as error:
            assert error.args == ("shown",)
        else:
            raise AssertionError("the error is lost")
