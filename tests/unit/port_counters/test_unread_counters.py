"""Files near to port counters are named, with what to give instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailback.port_counters.readers import read_counters
from tailback.port_counters.schema import CounterError

LDMS = "#Time,Time_usec,ProducerName,component_id\n1.1,100000,host1,1\n"


@pytest.mark.parametrize(
    ("text", "place", "message", "remedy"),
    [
        (LDMS, "line 1", "without counters of links; its columns are 'Time', 'Time_usec'", "ibnet"),
        (LDMS[:9], "line 1", "without counters of links", "ibnet"),
        ('# "Time", Load\n1,2\n', "line 1", "'Time', 'Load'", "sampler of links"),
        ("#Time," + "x" * 70_000, "line 1", "without counters of links", "ibnet"),
        (
            "\n# ldms_ls -h n1 -l\nn1/ibnet: consistent, last update: Thu\n",
            "line 2",
            "ldms_ls",
            "store_csv",
        ),
        (
            "nid62_60020/cray_aries_r: consistent, last update: Thu [2us]\n",
            "line 1",
            "ldms_ls",
            "store_csv",
        ),
        (
            "\n\nPortSelect: 1\nPortXmitData: 5\n",
            "line 3",
            "without the name of their port",
            "# Port counters",
        ),
    ],
    ids=["ldms", "cut", "quoted", "long", "list", "set", "port"],
)
def test_what_it_is_and_what_is_missing(
    text: str, place: str, message: str, remedy: str, tmp_path: Path
) -> None:
    file = tmp_path / "counters"
    file.write_text(text)
    with pytest.raises(CounterError) as caught:
        read_counters(file)
    assert (
        message in caught.value.message
        and caught.value.place == place
        and caught.value.file == file
    )
    assert caught.value.remedy is not None and remedy in caught.value.remedy
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("content", [b"\xff\xfe\x00#Time,", b"Time,Load\n1,2\n", b"hello"])
def test_anything_else_is_refused_without_a_guess(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "counters").write_bytes(content)
    with pytest.raises(CounterError, match="no reader recognises this format"):
        read_counters(tmp_path / "counters")
