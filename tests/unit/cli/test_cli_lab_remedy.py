"""What a diagnosis recommends, with its files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailback.cli.lab import recommended_change
from tailback.diagnosis.model import Candidate, Kind, Remedy
from tailback.errors import RunError
from tailback.io.manifest import write_manifest
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


@pytest.mark.parametrize(
    ("kind", "name"), [("placement", "tile"), ("routing", "other"), ("rate-control", "other")]
)
def test_change_has_its_kind_and_files(tmp_path: Path, kind: Kind, name: str) -> None:
    folder = diagnosis_in(tmp_path, remedy_of(kind))
    change = recommended_change(folder)
    assert change.kinds == {name: kind} and change.folder == folder
    # A placement beside it is to be used meanwhile.
    assert change.rank_file == folder / HOSTS and change.rates_file is None


def test_healthy_run_has_no_change(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="recommends no change") as caught:
        recommended_change(diagnosis_in(tmp_path, None))
    assert "placement of your own" in (caught.value.remedy or "")


def test_changed_rank_file_is_refused(tmp_path: Path) -> None:
    folder = diagnosis_in(tmp_path, remedy_of("placement"))
    (folder / HOSTS).write_text("h00\nh02\n")
    with pytest.raises(RunError, match=HOSTS):
        recommended_change(folder)


def test_folder_without_diagnosis_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="is no diagnosis"):
        recommended_change(tmp_path)
