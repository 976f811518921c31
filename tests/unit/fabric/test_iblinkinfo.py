"""Fabrics from what iblinkinfo prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailback.errors import FabricError
from tailback.fabric.readers import read_fabric
from tests.factories.fabric_files import LINKINFO


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "links.txt"
    path.write_text(text)
    return path


def test_ports_join_by_local_identifier(tmp_path: Path) -> None:
    fabric = read_fabric(write(tmp_path, LINKINFO))
    assert {fabric.link_name(link) for link in range(fabric.n_links)} >= {
        "leaf[9] → spine[1]",
        "spine[1] → leaf[9]",
        "n2 HCA-1[1] → leaf[2]",
    }


def test_slower_links_are_counted_in_a_note(tmp_path: Path) -> None:
    text = LINKINFO.replace('"spine" ( )', '"spine" ( Could be NDR)')
    notes = read_fabric(write(tmp_path, text)).notes
    assert notes == ["ports that could be wider or faster: 1 ('leaf[9]')"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("5    9[  ] ==(", "5  999[  ] ==(", "line 11: port number"),
        ("CA: n2 HCA-1:\n", "", "line 1: a port without the device"),
        ("Active/  LinkUp)==>", "Active/  LinkUp", "line 2: .* is not a port"),
        ("==( 4X", "==( 5X", "rate"),
    ],
)
def test_damaged_lines_are_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(FabricError, match=message):
        read_fabric(write(tmp_path, LINKINFO.replace(old, new)), format="iblinkinfo")
