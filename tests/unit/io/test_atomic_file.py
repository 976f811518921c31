"""Files that are exported: they appear whole or not at all, and not in place of their source."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from tailback.run.run import Run, atomic_file
from tests.factories.cli import process, refused, simulated


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with the samples of its packets."""
    return simulated(tmp_path_factory.mktemp("run"), 'scheme = "compact"')


@pytest.mark.parametrize("kind", [KeyboardInterrupt, OSError])
@pytest.mark.parametrize("old", [None, b"good"])
def test_what_fails_leaves_what_there_was(
    kind: type[BaseException], old: bytes | None, tmp_path: Path
) -> None:
    path = tmp_path / "out"
    if old is not None:
        path.write_bytes(old)
    with pytest.raises(kind), atomic_file(path, force=True) as file:
        file.write(b"half")
        raise kind
    left = {entry.name: entry.read_bytes() for entry in tmp_path.iterdir()}
    assert left == ({} if old is None else {"out": old})


@pytest.mark.parametrize("links", [True, False])
def test_a_file_that_appears_meanwhile_stays(
    links: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    if not links:
        monkeypatch.setattr(Path, "hardlink_to", refuse)
    path = tmp_path / "out"
    with atomic_file(path) as file:
        file.write(b"mine")
    assert path.read_bytes() == b"mine"
    path.unlink()
    with pytest.raises(FileExistsError), atomic_file(path) as file:
        path.write_bytes(b"another")
    assert path.read_bytes() == b"another" and len(list(tmp_path.iterdir())) == 1


def test_permissions_and_links_are_preserved(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    link.symlink_to("real")
    with atomic_file(link) as file:
        file.write(b"new")
    real.chmod(0o600)
    with atomic_file(link, force=True) as file:
        file.write(b"newer")
    assert link.is_symlink() and real.read_bytes() == b"newer"
    assert real.stat().st_mode & 0o777 == 0o600


def test_a_pipe_is_written_as_it_is(tmp_path: Path) -> None:
    pipe, contents = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: contents.append(pipe.read_bytes()))
    reader.start()
    with atomic_file(pipe, force=True) as file:
        file.write(b"packets")
    reader.join(10)
    assert contents == [b"packets"] and pipe.is_fifo()


@pytest.mark.slow
@pytest.mark.parametrize("what", ["pcap", "counts"])
def test_a_full_disk_leaves_the_old_export(what: str, run: Path, tmp_path: Path) -> None:
    # A limit on the size of files makes every larger write fail, as a full disk does.
    def limit() -> None:
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))

    out = tmp_path / "out"
    for old in (None, "good"):
        if old is not None:
            out.write_text(old)
        child = process(["export", what, run, out, "--force"], preexec_fn=limit)
        _, err = child.communicate(timeout=60)
        assert child.returncode == 2 and "cannot be written" in err, err
        left = {entry.name: entry.read_text() for entry in tmp_path.iterdir()}
        assert left == ({} if old is None else {"out": old})


@pytest.mark.parametrize("what", ["pcap", "counts", "attribution"])
def test_an_export_does_not_replace_what_it_reads(
    what: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (run / "links.parquet").read_bytes()
    arguments = ["export", what, run, run / ".." / "run" / "links.parquet", "--force"]
    refused(capsys, arguments, "links.parquet", "is inside the folder that is exported", "remedy")
    assert (run / "links.parquet").read_bytes() == before
    assert Run.read(run).complete
