"""The rank file of a diagnosis that the lab can apply, and why it cannot."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailback.diagnosis.model import Candidate, Kind, Remedy
from tailback.errors import RunError
from tailback.io.manifest import write_manifest
from tailback.sources.diagnosis_folder import placement_of_remedy
from tests.factories.report_data import make_diagnosis, make_run

HOSTS = "hosts.openmpi-seq"


def diagnosis_in(folder: Path, remedy: Remedy | None) -> Path:
    """A folder with a diagnosis, and a rank file if its remedy has one."""
    diagnosis = make_diagnosis(make_run())
    update = {"remedy": remedy, "waterfall": []}
    text = diagnosis.model_copy(update=update).model_dump_json()
    (folder / "diagnosis.json").write_text(text)
    if remedy is not None and remedy.files:
        (folder / HOSTS).write_text("h00\nh01\n")
    write_manifest(folder, "1")
    return folder


def remedy_of(kind: Kind, *, files: bool = True, placement: str = "tile") -> Remedy:
    """A remedy of a kind, beside a placement that helps as well."""
    name = "tile" if kind == "placement" else "other"
    return Remedy(
        actions=("Do something else.",),
        name=name,
        parts=(name,),
        placement=placement,
        before_ps=100,
        after_ps=80,
        gain=0.2,
        candidates=[
            Candidate(name=each, kind=of, elapsed_ps=80)
            for each, of in {"tile": "placement", name: kind}.items()
        ],
        files={HOSTS: "for openmpi-seq"} if files else {},
        commands=[],
    )


def test_placement_is_its_rank_file(tmp_path: Path) -> None:
    folder = diagnosis_in(tmp_path, remedy_of("placement"))
    assert placement_of_remedy(folder) == folder / HOSTS


@pytest.mark.parametrize(
    ("remedy", "message", "help"),
    [
        (None, "recommends no change", "placement of your own"),
        (remedy_of("routing"), "change of routing.*Do something else", HOSTS),
        (remedy_of("rate-control", files=False), "change of rate-control", "make that change"),
        (remedy_of("placement", files=False), "no rank file of placement 'tile'", "again"),
    ],
)
def test_other_remedies_are_refused(
    tmp_path: Path, remedy: Remedy | None, message: str, help: str
) -> None:
    with pytest.raises(RunError, match=message) as caught:
        placement_of_remedy(diagnosis_in(tmp_path, remedy))
    assert help in (caught.value.remedy or "")


def test_changed_rank_file_is_refused(tmp_path: Path) -> None:
    folder = diagnosis_in(tmp_path, remedy_of("placement"))
    (folder / HOSTS).write_text("h00\nh02\n")
    with pytest.raises(RunError, match=HOSTS):
        placement_of_remedy(folder)


def test_folder_without_diagnosis_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="is no diagnosis"):
        placement_of_remedy(tmp_path)
