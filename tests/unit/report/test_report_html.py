"""The HTML report: complete, self-contained, safe with hostile names, and the same every time."""

from __future__ import annotations

import base64
import hashlib
import html.parser
import json
import re
import zlib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from tailback.diagnosis.explanation import Explanation, NextMeasurement
from tailback.diagnosis.model import Finding
from tailback.errors import RunError
from tailback.report import FigureData, render_report, write_report
from tailback.report.html import _shares, _steps
from tailback.report.packing import safe_json
from tailback.report.payload import PHASES_CARRIED, phases_carried
from tailback.run.run import Run
from tests.factories.report_data import PHASES, TAPERED, make_diagnosis, make_run

HOSTILE = "<img src=x onerror=alert(1)></script><!--<script>alert(2)</script>\"'&{{7*7}}$\\frac{"


class Reader(html.parser.HTMLParser):
    """Elements, attributes and text of a page."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.content: dict[str, str] = {}
        self.text: list[str] = []
        self._id = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._id = dict(attrs).get("id") or tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)
        self.content[self._id] = self.content.get(self._id, "") + data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


@cache
def page(hostile: str = "") -> str:
    run = make_run(prefix=hostile, phases=(hostile + "+x", "-x", "+y", "-y"))
    return render_report(
        run,
        make_diagnosis(run, hostile=hostile),
        after=make_run(prefix=hostile, tiled=True),
        files={"rankfile" + hostile: "rank 0=a\n"},
    )


@cache
def read(hostile: str = "") -> Reader:
    return Reader(page(hostile))


def unpack(reader: Reader) -> tuple[dict[str, Any], Any]:
    data = json.loads(reader.content["report-data"])
    raw = zlib.decompress(base64.b64decode(reader.content["report-arrays"]))
    kinds = {"u1": np.uint8, "u2": np.uint16, "u4": np.uint32, "i4": np.int32, "f4": np.float32}

    def array(ref: dict[str, Any]) -> NDArray[Any]:
        kind = np.dtype(kinds[ref["t"]])
        planes = np.frombuffer(raw, np.uint8, ref["n"] * kind.itemsize, ref["o"])
        return planes.reshape(kind.itemsize, ref["n"]).T.copy().view(kind).ravel()

    return data, array


def test_parts_are_in_order_verdict_first() -> None:
    ids = [attributes.get("id") for attributes in read().all("section")]
    assert ids == [
        "verdict",
        "cost",
        "when",
        "where",
        "placement",
        "evidence",
    ]
    text = page()
    assert text.index("Placement: neighbours of the grid") < text.index("What to do")


def test_page_says_what_the_diagnosis_says() -> None:
    text = " ".join(" ".join(read().text).split())
    for part in (
        "61 µs",
        "41.9 µs",
        "TB002, 86 % of congested packets",
        "Place ranks in 8×4 tiles",
        "mpirun -np 4608 --rankfile rankfile ./app",
        "needs a power of two of ranks",
        "Seed",
        "stencil on a fat tree",
        "3 messages were received before they were sent",
    ):
        assert part in text, part


def test_the_step_table_reaches_the_observed_time() -> None:
    run = make_run()
    diagnosis = make_diagnosis(run)
    *steps, observed = diagnosis.waterfall
    last_step = {"elapsed_ps": observed.elapsed_ps + 3_000_000, "delta_ps": 3_000_000}
    bars = [*steps, observed.model_copy(update=last_step)]
    page = Reader(render_report(run, diagnosis.model_copy(update={"waterfall": bars})))
    text = " ".join(" ".join(page.text).split())
    assert "remainder 64.2 µs 3 µs " in text
    assert "expected 64.2 µs the given run" in text


def test_roots_stand_above_waiting_links() -> None:
    run = make_run()
    diagnosis = make_diagnosis(run)
    roots = {link.link for finding in diagnosis.findings for link in finding.links}
    rows = re.findall(
        r'<tr data-link="(\d+)" data-phase="[^"]*"><td>[^<]*</td><td>(\w+)</td>', page()
    )
    parts = [part for _, part in rows]
    assert parts == sorted(parts) and set(parts) == {"root", "waits"}
    assert {int(link) for link, part in rows if part == "root"} == roots
    assert set(unpack(read())[0]["marks"]["roots"]) == roots, "the picture marks them, too"
    shrunk = FigureData(run).load().shrunk
    assert shrunk is not None
    for part in ("root", "waits"):
        ends = [shrunk.low[int(link)] for link, this in rows if this == part]
        assert ends == sorted(ends, reverse=True)


def test_the_link_table_has_the_plots_numbers() -> None:
    """Those of a link's own samples single out the links that chance favoured most."""
    shrunk = FigureData(make_run()).load().shrunk
    assert shrunk is not None
    rows = re.findall(
        r'<tr data-link="(\d+)".*?<td class="n" data-value="([\d.]+)">(?:(\d+(?:\.\d)?)\s%)? ',
        page(),
        re.S,
    )
    assert len(rows) >= 5
    for link, low, value in rows:
        assert float(low) == pytest.approx(shrunk.low[int(link)])
        assert not value or float(value) == pytest.approx(100 * shrunk.value[int(link)], abs=0.51)


def test_congested_packets_that_cost_no_time_are_told() -> None:
    """A share of the packets beside a remedy that gains nothing would contradict it."""
    run = make_run()
    diagnosis = make_diagnosis(run)
    routing = diagnosis.findings[0].model_copy(update={"cause": "routing", "share": 0.31})
    free = [
        bar.model_copy(update={"delta_ps": 0, "low_ps": 0, "high_ps": 0})
        if bar.name == "routing"
        else bar
        for bar in diagnosis.waterfall
    ]
    changed = {"findings": [*diagnosis.findings, routing], "waterfall": free}
    text = render_report(run, diagnosis.model_copy(update=changed))
    note = "<strong>Routing imbalance</strong> congests packets but costs no time"
    assert note in text and note not in page()


def test_link_numbers_cover_the_run() -> None:
    text = " ".join(read().text)
    assert "Mostly in phase" in text and "estimates of the whole run" in text


def test_every_figure_is_drawn_once() -> None:
    """The viewer draws them all; verdict, remedy and tables need no script."""
    assert read().all("img") == []
    canvases = {attributes["id"] for attributes in read().all("canvas")}
    assert canvases == {
        "waterfall",
        "before_after",
        "fabric",
        "raster",
        "course",
        "time_course",
        "matrix",
        "distance_histogram",
        "flame",
        "change_back_pressure",
        "change_how_sure",
        "samples",
        "points",
    }
    data, _ = unpack(read())
    assert canvases >= {*data["bars"], *data["columns"]}


def test_nothing_is_fetched() -> None:
    for tag, attributes in read().elements:
        for name in ("src", "href", "srcset", "action", "poster", "data"):
            value = attributes.get(name) or ""
            assert value.startswith(("data:", "#")) or not value, (tag, name, value[:80])
    assert not {"link", "iframe", "object", "embed", "form", "base"} & {
        t for t, _ in read().elements
    }
    assert not re.search(r"@import|url\((?!['\"]?(data:|#))", read().content["style"])


def test_policy_allows_only_our_own_script_and_style() -> None:
    policy = next(a["content"] for a in read().all("meta") if a.get("http-equiv"))
    assert policy is not None
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy and "http" not in policy
    scripts = re.findall(r"<script>(.*?)</script>", page(), re.S)
    styles = re.findall(r"<style>(.*?)</style>", page(), re.S)
    assert len(scripts) == len(styles) == 1
    for text in (*scripts, *styles):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert not any("style" in a for _, a in read().elements), "the policy would block these"
    assert not any(n.startswith("on") for _, a in read().elements for n in a)


def test_hostile_names_are_text() -> None:
    plain, hostile = read(), read(HOSTILE)
    count = {t: len(plain.all(t)) for t in ("script", "img", "section", "canvas", "style")}
    assert {t: len(hostile.all(t)) for t in count} == count
    assert not any(n.startswith("on") for _, a in hostile.elements for n in a)
    text = " ".join(hostile.text)
    assert HOSTILE in text, "the name itself must be shown, unharmed"
    assert "49" not in re.sub(r"\d{3,}", "", hostile.content.get("title", ""))
    data, _ = unpack(hostile)
    assert data["switch_names"][0].startswith(HOSTILE)
    assert data["datasets"][0]["selections"][1]["phase"] == HOSTILE + "+x"


def test_json_cannot_end_its_element() -> None:
    text = safe_json({"a": "</script><!--&\u2028"})
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == {"a": "</script><!--&\u2028"}


def test_arrays_hold_what_the_tables_say() -> None:
    evidence = FigureData(make_run())
    data, array = unpack(read())
    assert [d["id"] for d in data["datasets"]] == ["observed", "after"]
    selections = data["datasets"][0]["selections"]
    assert [s["phase"] for s in selections] == [None, *PHASES]
    for selection in selections:
        load = evidence.load(selection["phase"])
        assert np.array_equal(array(selection["weight"]), load.weight)
        assert np.array_equal(array(selection["samples"]), load.samples)
        assert np.array_equal(array(selection["congested"]), load.congested_weight)
        variance = array(selection["congested_variance"])
        assert np.allclose(variance, load.congested_variance, atol=0.5)
    cells = np.concatenate([array(b["cells"]) for band in data["blocks"] for b in band])
    assert sorted(cells[cells >= 0]) == list(range(evidence.n_links))
    assert np.array_equal(array(data["layout"]["halves"]), evidence.layout.halves)


def test_counts_beyond_32_bits_keep_their_fraction() -> None:
    run = make_run()
    many = run.tables["samples"].with_columns(pl.col("hop_weight", "congested_weight") * 2**28)
    large = Run(run.scenario, run.tables | {"samples": many}, run.summary)
    data, array = unpack(Reader(render_report(large, make_diagnosis(run))))
    selection = data["datasets"][0]["selections"][0]
    load = FigureData(run).load()
    seen = load.weight > 0
    fraction = array(selection["congested"])[seen] / array(selection["weight"])[seen]
    assert np.allclose(fraction, load.raw_fraction[seen])


def test_marks_that_turn_the_writing_are_visible() -> None:
    """A name that would show reversed, as another name, shows its mark instead."""
    name = "\u202e10edon\u202c\u2067"
    text = page(name)
    assert not re.search("[\u202a-\u202e\u2066-\u2069]", text)
    data, _ = unpack(read(name))
    assert data["node_names"][0] == r"\x202e10edon\x202c\x2067node0000"
    phases = {row.get("data-phase") for row in read(name).all("tr")}
    assert data["datasets"][0]["selections"][1]["phase"] in phases


def test_files_can_be_downloaded_as_they_are() -> None:
    offered = [a for a in read().all("a") if (a.get("href") or "").startswith("data:text")]
    assert [a["download"] for a in offered] == ["rankfile"]
    content = (offered[0]["href"] or "").partition("base64,")[2]
    assert base64.b64decode(content) == b"rank 0=a\n"


def test_files_stand_beside_the_command_that_uses_them() -> None:
    diagnosis = make_diagnosis(make_run())
    remedy = diagnosis.remedy
    assert remedy is not None
    both = {"hosts.slurm": "a", "rankfile": "b"}
    paired = _steps(diagnosis, both)
    assert [(d and d[0], c and c.split()[0]) for d, c in paired] == [
        ("rankfile", "mpirun"),
        ("hosts.slurm", "SLURM_HOSTFILE=hosts.slurm"),
    ]
    only = _steps(diagnosis, {"hosts.slurm": "a"})
    assert [(d and d[0], c and c.split()[0]) for d, c in only] == [
        ("hosts.slurm", "SLURM_HOSTFILE=hosts.slurm"),
        (None, "mpirun"),
    ]
    more = _steps(diagnosis, both | {"notes": "c"})
    assert [(d and d[0], c is None) for d, c in more] == [
        ("rankfile", False),
        ("hosts.slurm", False),
        ("notes", True),
    ]


@pytest.mark.slow
def test_tapered_report_is_small(tmp_path: Path) -> None:
    run, after = make_run(TAPERED), make_run(TAPERED, tiled=True)
    files = {"rankfile": "".join(f"rank {i}=node{i:04d} slot=0\n" for i in range(4608))}
    path = write_report(tmp_path / "r.html", run, make_diagnosis(run), after=after, files=files)
    assert path.stat().st_size < 3_000_000


def test_same_input_gives_the_same_bytes() -> None:
    assert page.__wrapped__() == page()  # drawn again, not taken from the cache


def test_a_diagnosis_without_remedy_or_waterfall() -> None:
    run = make_run(truth=False)
    complete = make_diagnosis(run)
    open_ = complete.findings[0].model_copy(
        update={"code": "TB005", "cause": "undetermined", "title": "Too few samples", "links": []}
    )
    diagnosis = complete.model_copy(
        update={
            "remedy": None,
            "waterfall": [],
            "findings": [open_],
            "top_links": [],
            "cause": "undetermined",
            "warnings": [],
        }
    )
    reader = Reader(render_report(run, diagnosis))
    assert "remedy" not in [a.get("id") for a in reader.all("section")]
    assert "Too few samples" in " ".join(reader.text)
    assert "No warnings." in " ".join(reader.text)
    assert "#remedy" not in [a.get("href") for a in reader.all("a")]


def test_a_run_without_samples_still_reports() -> None:
    run = make_run()
    empty = {n: run.tables[n].clear() for n in ("samples", "messages", "truth", "windows")}
    bare = Run(run.scenario, run.tables | empty, run.summary | {"complete": False})
    reader = Reader(render_report(bare, make_diagnosis(run)))
    text = " ".join(reader.text)
    assert "has no message log" in text and "interrupted" in text
    assert "No packet carried a sample" in text and "single time window" not in text


def test_a_remedy_simulated_for_time_is_no_choice() -> None:
    run, after = make_run(), make_run(tiled=True)
    after.tables["samples"] = after.tables["samples"].clear()
    data, _ = unpack(Reader(render_report(run, make_diagnosis(run), after=after)))
    assert [d["id"] for d in data["datasets"]] == ["observed"]


def test_an_open_verdict_leads_to_the_next_command() -> None:
    run = make_run()
    diagnosis = make_diagnosis(run)
    measurement = NextMeasurement(
        kind="counters",
        subjects=[],
        bits=1.2,
        command=["tailback", "collect", "--out", "counters"],
        text="counters show slow links",
    )
    explanation = Explanation(
        elapsed_ps=10,
        parts={"computation": 10},
        costs=[],
        not_explained_ps=0,
        model_error_ps=0,
        missing=[],
        next_measurement=measurement,
        sources=[],
    )
    for remedy in (diagnosis.remedy, None):
        update = {"explanation": explanation, "remedy": remedy}
        text = render_report(run, diagnosis.model_copy(update=update))
        answer = text[text.index('id="remedy"') : text.index('id="cost"')]
        assert "<code>tailback collect --out counters</code>" in answer


def test_doubt_is_said_at_the_top() -> None:
    run = make_run()
    diagnosis = make_diagnosis(run)
    sampling = diagnosis.sampling.model_copy(update={"sufficient": False, "note": "Run longer."})
    text = render_report(run, diagnosis.model_copy(update={"sampling": sampling}))
    assert text.index("Too few samples to be sure.") < text.index('id="remedy"')
    assert "Too few samples" not in page()


def test_shares_by_cause_add_up() -> None:
    def finding(cause: Any, share: float) -> Finding:
        return Finding(
            code="TB000",
            cause=cause,
            title="",
            explanation="",
            share=share,
            phases=[],
            links=[],
            advice="",
        )

    shares = _shares([finding("pattern", 0.2), finding("placement", 0.5), finding("pattern", 0.1)])
    assert [(c, round(s, 6), round(w, 6)) for c, s, w in shares] == [
        ("placement", 0.0, 0.5),
        ("pattern", 0.5, 0.3),
    ]
    over = _shares([finding("pattern", 0.9), finding("placement", 0.9)])
    assert sum(width for _, _, width in over) == pytest.approx(1.0)


def test_many_phases_keep_the_heaviest() -> None:
    run = make_run()
    samples, labels = run.tables["samples"], run.tables["labels"]
    many = PHASES_CARRIED + 6
    names = [f"p{i}" for i in range(many)]
    tables = run.tables | {
        "samples": samples.with_columns(
            label=(samples["window"] % many).cast(samples["label"].dtype)
        ),
        "labels": labels[[0] * many].with_columns(
            label=np.arange(many, dtype=np.uint32), phase=np.array(names)
        ),
    }
    evidence = FigureData(Run(run.scenario, tables, run.summary))
    kept = phases_carried(evidence)
    assert len(kept) == PHASES_CARRIED
    lightest = min(float(evidence.load(p).weight.sum()) for p in kept)
    left = set(evidence.phases) - set(kept)
    assert all(float(evidence.load(p).weight.sum()) <= lightest for p in left)


def test_report_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    run = make_run()
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot write the report"):
        write_report(tmp_path / "file" / "r.html", run, make_diagnosis(run))
    target = tmp_path / "r.html"
    target.mkdir()
    with pytest.raises(RunError, match="cannot write the report"):
        write_report(target, run, make_diagnosis(run))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "r.html"]
