"""Generated tables: each is recorded, unedited, and current or marked."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import measuring
from measuring import records
from measuring.records import MARK, ROOT, Record, digest_python, read_records, recorded_tables
from studies import __main__ as command

PAGES = (*sorted(ROOT.glob("studies/*/README.md")), *sorted(ROOT.glob("docs/**/*.md")))


def written_part(page: Path, name: str) -> str:
    text = page.read_text(encoding="utf-8")
    return text.partition(f"<!-- {name} -->\n")[2].partition(f"\n<!-- end {name} -->")[0]


def test_every_table_has_a_record() -> None:
    recorded = recorded_tables(read_records())
    for page in PAGES:
        for name in re.findall(r"<!-- end (.+?) -->", page.read_text(encoding="utf-8")):
            assert (page, name) in recorded, f"{page.relative_to(ROOT)}: {name} was never made"


def test_tables_are_as_they_were_made() -> None:
    for record in read_records().values():
        for place, digest in record.tables.items():
            page, _, name = place.partition("#")
            text = MARK.sub("", written_part(ROOT / page, name))
            assert records.short_digest(text.encode()) == digest, f"{place} was edited by hand"


def test_tables_are_current_or_marked() -> None:
    for record in read_records().values():
        changed = record.changed_inputs()
        for place in record.tables if changed else ():
            page, _, name = place.partition("#")
            assert MARK.search("\n\n" + written_part(ROOT / page, name)), (
                f"{place}: {', '.join(changed)} changed; remedy: {record.command}, or "
                "python -m studies mark"
            )


def test_digests_leave_out_comments_and_docstrings() -> None:
    plain = digest_python("def f(x):\n    return x + 1\n")
    assert digest_python('def f(x):\n    """Doc."""\n    # Why.\n    return (x + 1)\n') == plain
    assert digest_python("def f(x):\n    return x + 2\n") != plain


def test_rust_digests_leave_out_tests_and_comments(tmp_path: Path) -> None:
    def digest(source: str, test: str) -> str:
        crate = tmp_path / str(len(list(tmp_path.iterdir())))
        (crate / "src").mkdir(parents=True)
        (crate / "tests").mkdir()
        (crate / "src" / "lib.rs").write_text(source)
        (crate / "tests" / "a.rs").write_text(test)
        return records.digest_folder(crate)

    plain = digest("fn f() {}\n", "")
    assert digest("/// Doc.\n    fn f() {}\n", "fn t() {}\n") == plain
    assert digest("fn g() {}\n", "") != plain


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A page of a repository of its own, with one part made from one module."""
    (tmp_path / "studies").mkdir()
    (tmp_path / "studies" / "a.py").write_text("x = 1\n")
    monkeypatch.setattr(records, "ROOT", tmp_path)
    monkeypatch.setattr(records, "RECORDS", tmp_path / "tables.json")
    monkeypatch.setattr(records, "read_records", lambda: read_records(tmp_path / "tables.json"))
    monkeypatch.setattr(
        records, "write_records", lambda made: write(made, tmp_path / "tables.json")
    )
    monkeypatch.setattr(
        records, "gather_inputs", lambda: {"studies/a.py": digest_python("x = 1\n")}
    )
    monkeypatch.setattr(records, "gather_product", dict)
    out = tmp_path / "README.md"
    out.write_text("Before\n<!-- sums -->\n<!-- end sums -->\nAfter\n")
    measuring.put(out, {"sums": "| 1 |"}, "--write", 2.0)
    return out


write = records.write_records


def made(page: Path) -> Record:
    (record,) = read_records(page.parent / "tables.json").values()
    return record


def test_a_changed_input_marks_its_table(page: Path) -> None:
    record = made(page)
    assert record.tables.keys() == {"README.md#sums"} and record.command.endswith("--write")
    assert record.changed_inputs(page.parent) == []
    (page.parent / "studies" / "a.py").write_text("x = 22\n")
    assert record.changed_inputs(page.parent) == ["studies/a.py"]


def test_marks_are_set_and_removed(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, record = page.read_text(), made(page)
    monkeypatch.setattr(Record, "changed_inputs", lambda _: ["studies/a.py"])
    assert records.mark_tables({record.command: record}) == [(page, "sums")]
    assert "inputs changed since.*\n<!-- end sums -->" in page.read_text()
    monkeypatch.setattr(Record, "changed_inputs", lambda _: [])
    assert records.mark_tables({record.command: record}) == []
    assert page.read_text() == before


def test_another_command_takes_a_table_over(page: Path) -> None:
    record = made(page)
    other = Record("python b.py", "", 1.0, {"README.md#sums": "0"}, {}, {})
    assert records.with_record({record.command: record}, other).keys() == {"python b.py"}


def test_list_ends_quietly_when_its_reader_leaves() -> None:
    program = "from studies import __main__ as m; m.read_records = dict; m.main()"
    pipe = subprocess.PIPE
    words = [sys.executable, "-uc", program]
    with subprocess.Popen(words, cwd=ROOT, stdout=pipe, stderr=pipe) as listing:
        assert listing.stdout is not None and listing.stderr is not None
        listing.stdout.readline()
        listing.stdout.close()
        assert listing.stderr.read() == b""


def test_differing_lines_leave_out_processor_time(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "ROOT", page.parent)
    copy = tmp_path / "copy"
    copy.mkdir()
    text = page.read_text()
    (copy / "README.md").write_text(text.replace("| 1 |", "| 2 |"))
    record = made(page)
    (said,) = command.changed_lines(page.parent, copy, {record.command: record})
    assert said.splitlines()[1:] == ["- | 1 |", "+ | 2 |"]
    assert command.comparable_lines("x (12 s) y") == command.comparable_lines("x (7 s) y")
