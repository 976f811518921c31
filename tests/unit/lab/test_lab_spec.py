"""What a specification of a lab may say, and what the complaint is otherwise."""

from pathlib import Path
from typing import Any

import pytest

from tailback.lab.spec import LabError, load, parse

EXAMPLE = Path(__file__).parents[3] / "examples" / "lab" / "leaf-spine.toml"


def test_the_example_says_what_its_comment_says() -> None:
    spec = load(EXAMPLE)
    assert (spec.fabric.leaves, spec.fabric.spines, spec.fabric.hosts_per_leaf) == (4, 2, 3)
    assert spec.fabric.host_rate == pytest.approx(0.05)
    assert spec.fabric.queue == 400_000
    assert (spec.fabric.congested_bytes, spec.fabric.ip) == (40_000, 4)
    fabric = spec.fabric.model_copy(update={"congested": 3000})
    assert fabric.congested_bytes == 3000
    assert len(spec.job.hosts) * spec.job.ranks_per_host == 16
    assert len(spec.host_names()) == 12


@pytest.mark.parametrize(
    ("data", "place", "words"),
    [
        ({"job": {"hosts": ["h00"], "rank_per_host": 2}}, "[job] rank_per_host", "ranks_per_host"),
        ({"job": {"hosts": ["h00"]}, "fabrics": {}}, "fabrics", "fabric"),
        ({"job": {}}, "[job] hosts", "add it"),
        ({"job": {"hosts": ["h00"]}, "fabric": {"leaves": 11}}, "[fabric] leaves", "10"),
        ({"job": {"hosts": ["h00"]}, "fabric": {"host_rate": "50"}}, "[fabric] host_rate", "Gb/s"),
        (
            {"job": {"hosts": ["h00"]}, "fabric": {"spine_rate": "0 b/s"}},
            "[fabric] spine_rate",
            "0",
        ),
        ({"job": {"hosts": ["h00"]}, "name": "../../etc"}, "name", "pattern"),
        ({"job": {"hosts": ["h00"]}, "name": "a b"}, "name", "pattern"),
        ({"job": {"hosts": ["h00", "h00"]}}, None, "ranks_per_host"),
        ({"job": {"hosts": ["h90"]}}, None, "there is no host 'h90'"),
        ({"job": {"hosts": ["h00"]}, "fabric": {"burst": "1 kB"}}, "fabric", "1600 B"),
        ({"job": {"hosts": ["h00"]}, "fabric": {"ip": 5}}, "[fabric] ip", "4 or 6"),
    ],
)
def test_a_wrong_specification_is_refused_with_a_remedy(
    data: dict[str, Any], place: str | None, words: str
) -> None:
    with pytest.raises(LabError) as caught:
        parse(data, Path("lab.toml"))
    assert caught.value.place == place
    assert caught.value.remedy
    assert words in str(caught.value)
    assert "lab.toml" in str(caught.value)


@pytest.mark.parametrize("content", [b"\xff\xfe", b"name = ", b"[" * 5000])
def test_what_is_no_toml_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "lab.toml"
    file.write_bytes(content)
    with pytest.raises(LabError, match=r"not valid TOML|not a text file"):
        load(file)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="cannot be read"):
        load(tmp_path / "none.toml")
