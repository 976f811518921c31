"""Results survive a power failure: content is synced before it gets its name, and then the name."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tailback.api.sweep import plan_sweep
from tailback.collector.store import Collection
from tailback.io import atomic_exchange
from tailback.io.folders import AtomicDirectory, atomic_file
from tailback.report.page import write_page
from tests.factories.counter_collection import TARGETS, block

Events = list[tuple[str, Path]]


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> Events:
    """What is synced, renamed or removed, in order; files by the inode's name at that time."""
    events: Events = []
    fsync, rename, replace, link, unlink = (
        os.fsync,
        os.rename,
        os.replace,
        os.link,
        os.unlink,
    )
    exchange = atomic_exchange._exchange

    def synced(descriptor: int) -> None:
        fsync(descriptor)
        events.append(("sync", Path(os.readlink(f"/proc/self/fd/{descriptor}"))))

    def named(move: Callable[..., Any]) -> Callable[..., Any]:
        def call(source: Any, target: Any, *arguments: Any, **words: Any) -> Any:
            result = move(source, target, *arguments, **words)
            if result is not False:
                events.append(("name", Path(os.path.realpath(target))))
            return result

        return call

    def unlinked(path: Any, *arguments: Any, **words: Any) -> None:
        unlink(path, *arguments, **words)
        events.append(("remove", Path(os.path.abspath(path))))

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "rename", named(rename))
    monkeypatch.setattr(os, "replace", named(replace))
    monkeypatch.setattr(os, "link", named(link))
    monkeypatch.setattr(os, "unlink", unlinked)
    monkeypatch.setattr(atomic_exchange, "_exchange", named(exchange))
    return events


def written_folder(path: Path, *, force: bool = False) -> None:
    with AtomicDirectory(path, force=force) as part:
        (part / "inner").mkdir()
        (part / "inner" / "file").write_text("x")
        (part / "other").write_text("y")


def assert_synced_then_named(events: Events, target: Path, contents: set[str]) -> None:
    """Everything below a hidden name is synced, then renamed, then the parent is synced."""
    at = events.index(("name", target))
    hidden = {path for kind, path in events[:at] if kind == "sync"}
    root = next(path for path in hidden if path.parent == target.parent)
    assert {path.relative_to(root).as_posix() for path in hidden if path.is_relative_to(root)} >= (
        contents
    )
    after = events[at + 1 :]
    assert ("sync", target.parent) in after
    # Nothing older goes before the new name is on the disk.
    assert "remove" not in [kind for kind, _ in after[: after.index(("sync", target.parent))]]


CONTENTS = {".", "inner", "inner/file", "other", "manifest.json"}


@pytest.mark.parametrize("exchange", [True, False])
@pytest.mark.parametrize("older", [False, True])
def test_folder_is_synced_before_and_after_its_renaming(
    tmp_path: Path, events: Events, older: bool, exchange: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "a" / "b" / "result"
    if older:
        written_folder(target)
        events.clear()
    if not exchange:
        monkeypatch.setattr(atomic_exchange, "_exchange", lambda *_: False)
    written_folder(target, force=older)
    assert_synced_then_named(events, target, CONTENTS)
    if not older:
        # The folders that were created on the way.
        synced = [path for kind, path in events if kind == "sync"]
        assert {tmp_path / "a" / "b", tmp_path / "a", tmp_path} <= set(synced)


def test_unsynced_folder_is_not_put_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(122, "Disk quota exceeded")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(Exception, match="Disk quota exceeded"):
        written_folder(tmp_path / "result")
    assert list(tmp_path.iterdir()) == []


def exported_file(path: Path) -> None:
    with atomic_file(path, force=path.exists()) as file:
        file.write(b"x")


def written_study(path: Path) -> None:
    scenario = {
        "name": "tiny",
        "fabric": {"topology": {"kind": "k-ary-n-tree", "k": 2, "n": 2}},
        "job": [{"pattern": {"kind": "ring", "ranks": 4, "size": "4 KiB"}}],
    }
    plan_sweep(scenario, {"seed": [1]}, path.parent)


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("table.csv", exported_file),
        ("report.html", lambda path: write_page(path, "x", "report")),
        ("study/sweep.json", written_study),
    ],
)
@pytest.mark.parametrize("older", [False, True])
def test_file_is_synced_before_and_after_its_renaming(
    tmp_path: Path, events: Events, name: str, write: Callable[[Path], None], older: bool
) -> None:
    target = tmp_path / name
    if older and name != "study/sweep.json":
        target.write_text("old")
    write(target)
    assert_synced_then_named(events, target, {"."})


def test_collection_is_synced(tmp_path: Path, events: Events) -> None:
    collection = Collection(tmp_path / "c")
    writer = collection.begin(TARGETS, {})
    segment = tmp_path / "c" / "segments" / "000001.segment"
    assert ("sync", segment.parent) in events
    writer.append(block(1, 3))
    writer.close()
    assert ("sync", segment) in events
    events.clear()
    collection.compact()
    collection.close()
    files = [path for path in (tmp_path / "c").rglob("000001.*") if path.is_file()]
    assert {path.parent.name for path in files} >= {"readings", "intervals", "sha256"}
    gone = events.index(("remove", segment))
    for path in files:
        named = events.index(("name", path))
        assert ("sync", path.with_name(f".{path.name}.new")) in events[:named]
        # The segment goes only once the names of its tables are on the disk.
        assert ("sync", path.parent) in events[named:gone]
