"""Every registered reader of fabrics knows its own files alone, adds up and refuses damage."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tailback.errors import FabricError
from tailback.fabric.readers import READERS, read_fabric
from tests.factories.fabric_files import SAMPLES, FabricSample

ALL = [pytest.param(name, sample, id=name) for name, sample in SAMPLES.items()]


def test_every_registered_reader_is_tested_here() -> None:
    assert sorted(SAMPLES) == READERS.names()


@pytest.mark.parametrize(("name", "sample"), ALL)
def test_only_its_own_reader_recognises_a_file(name: str, sample: FabricSample) -> None:
    assert [entry.name for entry in READERS if entry.part.recognises(sample.text)] == [name]


@pytest.mark.parametrize(("name", "sample"), ALL)
def test_hosts_switches_cables_and_rates_add_up(
    name: str, sample: FabricSample, tmp_path: Path
) -> None:
    fabric = sample.read(tmp_path)
    fabric.check()
    counts = (fabric.n_hosts, fabric.n_switches, fabric.n_links)
    assert counts == (sample.hosts, sample.switches, 2 * sample.cables)
    assert fabric.link_gbps.sum() == pytest.approx(sample.gbps)
    ends = set(zip(fabric.link_src.tolist(), fabric.link_src_port.tolist(), strict=True))
    assert len(ends) == fabric.n_links, "two links leave one port"


@pytest.mark.parametrize(("name", "sample"), ALL)
def test_a_truncated_file_is_read_or_refused(
    name: str, sample: FabricSample, tmp_path: Path
) -> None:
    for length in range(0, len(sample.text), 3):
        try:
            sample.read(tmp_path, sample.text[:length]).check()
        except FabricError as error:
            assert error.file == tmp_path / "network", length
            assert error.remedy, length


@pytest.mark.parametrize(("name", "sample"), ALL)
def test_a_damaged_file_gives_no_traceback(name: str, sample: FabricSample, tmp_path: Path) -> None:
    contents = sample.text.encode()
    generator = np.random.default_rng(11)
    file = tmp_path / "network"
    for _ in range(300):
        damaged = bytearray(contents)
        for at in generator.integers(0, len(contents), 3):
            damaged[at] = generator.integers(0, 256)
        file.write_bytes(damaged)
        try:
            read_fabric(file, format=name, cable_gbps=sample.cable_gbps).check()
        except FabricError as error:
            assert error.file == file and error.remedy, bytes(damaged)


@pytest.mark.parametrize(("name", "sample"), ALL)
def test_a_rate_is_taken_if_the_file_lacks(name: str, sample: FabricSample, tmp_path: Path) -> None:
    (tmp_path / "network").write_text(sample.text)
    if sample.cable_gbps is None:
        with pytest.raises(FabricError, match=r"the file states that of every link") as caught:
            read_fabric(tmp_path / "network", cable_gbps=10)
    else:
        with pytest.raises(FabricError, match="no line states the speed of a link") as caught:
            read_fabric(tmp_path / "network")
        assert caught.value.remedy is not None and "cable_rate=" in caught.value.remedy
        assert set(sample.read(tmp_path).link_gbps) == {sample.cable_gbps}
    assert caught.value.file == tmp_path / "network"
