"""Ranks against measured time in a real browser: what it shows is what the tables say."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl
import pytest

from tailback.evidence.split import PART_NAMES
from tailback.report.rank_timeline import rank_timeline
from tailback.report.scales import KIND_COLOURS
from tests.factories import webdriver
from tests.factories.rank_times import STEP_PS, STEPS, make_measured, wait_ps
from tests.factories.report_data import make_diagnosis, make_run
from tests.factories.webdriver import DOWN, ENTER, ESCAPE, HOSTILE, RIGHT

pytestmark = webdriver.needed()

LEFT, RIGHT_EDGE, TOP, TALL = 150, 14, 8, 14
"""Where the rows of 16 ranks begin, in CSS pixels, and how high each is."""

POINT = """
const c = document.getElementById(arguments[0]);
const b = c.getBoundingClientRect(); c.setPointerCapture = () => {};
for (const [kind, x, y] of arguments[1]) c.dispatchEvent(new PointerEvent(kind,
  {pointerId: 1, clientX: b.left + x, clientY: b.top + y, bubbles: true}));
"""


def place(browser: webdriver.Browser, row: int, ps: float) -> tuple[float, float]:
    """Where a row has a time, in CSS pixels of the canvas."""
    wide = float(browser.run("return document.getElementById('ranks').clientWidth"))
    room = wide - LEFT - RIGHT_EDGE
    return LEFT + ps / (STEP_PS * STEPS) * room, TOP + (row + 0.5) * TALL


def point(browser: webdriver.Browser, *events: tuple[str, float, float]) -> None:
    browser.run(POINT, "ranks", [list(event) for event in events])
    browser.settle()


def text(browser: webdriver.Browser, name: str) -> str:
    return str(browser.run("return document.getElementById(arguments[0]).textContent", name))


def picture(browser: webdriver.Browser, canvas: str) -> str:
    browser.settle()
    return str(browser.run("return document.getElementById(arguments[0]).toDataURL()", canvas))


def colour(browser: webdriver.Browser, x: float, y: float) -> str:
    r, g, b = browser.run(
        "const c = document.getElementById('ranks'); const d = c.width / c.clientWidth;"
        "return [...c.getContext('2d').getImageData(arguments[0] * d, arguments[1] * d, 1, 1).data]"
        ".slice(0, 3)",
        x,
        y,
    )
    return f"#{r:02x}{g:02x}{b:02x}"


def test_numbers_and_colours_are_those_of_the_tables(
    browser: webdriver.Browser, measured: Path
) -> None:
    browser.open(measured)
    for rank, step in ((1, 0), (6, 3), (13, 8)):
        wait, start = wait_ps(rank, step), step * STEP_PS
        assert wait > 2_000_000, "the window in the middle of it must hold nothing else"
        kind = "late_sender" if rank % 2 else "wait_nxn"
        middles = {
            "computation": 2_500_000,
            kind: 5_000_000 + wait / 2,
            "transfer": (5_000_000 + wait + STEP_PS) / 2,
        }
        for what, at in middles.items():
            assert colour(browser, *place(browser, rank, start + at)) == KIND_COLOURS[what]
        x, y = place(browser, rank, start + middles[kind])
        point(browser, ("pointermove", x, y), ("pointerdown", x, y), ("pointerup", x, y))
        tip = text(browser, "ranks-tip").split("\n")
        assert tip[0] == f"rank {rank} on host{rank:02d}"
        assert tip[1].endswith("mostly in " + ("MPI_Recv" if rank % 2 else "MPI_Allreduce"))
        name = "late sender" if rank % 2 else "wait at N×N collective"
        assert tip[2:] == [f"{name} 1 µs (100 %)"]
        waited = sum(wait_ps(rank, each) for each in range(STEPS)) / 1e6
        assert f"Whole run: waited {waited:g} µs." in text(browser, "rank-detail")


def test_an_interval_has_its_messages_lines_and_links(
    browser: webdriver.Browser, measured: Path
) -> None:
    run = make_run()
    tables = make_measured(run)
    timeline = rank_timeline(tables)
    assert timeline is not None
    rank = 12
    # A window in which a message from another leaf is received.
    heard = tables["transfers"].filter((pl.col("dst_rank") == rank) & (pl.col("src_rank") >= 16))
    window = int(heard["recv_enter_ps"][0] // timeline.edges_ps[1]) + 1
    low, high = timeline.edges_ps[window : window + 2].tolist()
    expected = {
        f"rank {row['src_rank']} → rank {row['dst_rank']}, {row['size_bytes'] / 1000:.3g} kB"
        for row in tables["transfers"].iter_rows(named=True)
        if (row["dst_rank"] == rank and row["recv_enter_ps"] < high and row["recv_done_ps"] >= low)
        or (row["src_rank"] == rank and low <= row["send_enter_ps"] < high)
    }
    browser.open(measured)
    x, y = place(browser, rank, (low + high) / 2)
    point(browser, ("pointermove", x, y), ("pointerdown", x, y), ("pointerup", x, y))
    listed = browser.run(
        "return [...document.querySelectorAll('#rank-messages li')].map(li =>"
        " [...li.querySelectorAll('button')].map(b => b.textContent))"
    )
    shown = {buttons[0] for buttons in listed if buttons}
    assert shown and shown == expected
    assert all("tag" in buttons[1] or "MPI" in buttons[1] for buttons in listed if buttons)
    # A link of a message is chosen in every plot, and is one that its line met congestion on.
    name = browser.run(
        "const links = [...document.querySelectorAll('#rank-messages button')]"
        ".filter(b => b.textContent.includes('] →')); links[0].click(); return links[0].textContent"
    )
    link, share = re.fullmatch(r"(.*) (\d+) %", name).groups()  # type: ignore[union-attr]
    browser.settle()
    sentence = text(browser, "chosen")
    assert sentence.startswith(f"{link}: congested ")
    assert round(float(re.search(r"congested ([\d.]+) %", sentence)[1])) == int(share)  # type: ignore[index]


@pytest.mark.slow
def test_rows_are_sorted_by_the_time_they_waited(
    browser: webdriver.Browser, measured: Path
) -> None:
    browser.open(measured)
    browser.run(
        "const s = document.getElementById('rank-sort'); s.value = 'wait';"
        "s.dispatchEvent(new Event('change'))"
    )
    ranks = []
    for row in range(16):
        x, y = place(browser, row, 1_000_000)
        point(browser, ("pointermove", x, y))
        rank = re.match(r"rank (\d+) ", text(browser, "ranks-tip"))
        assert rank is not None
        ranks.append(int(rank[1]))
    total = {rank: sum(wait_ps(rank, step) for step in range(STEPS)) for rank in range(16)}
    assert ranks == sorted(total, key=lambda rank: (-total[rank], rank))
    assert ranks != list(range(16))


def test_rank_and_time_span_are_chosen_everywhere(
    browser: webdriver.Browser, measured: Path
) -> None:
    browser.open(measured)
    views = ("fabric", "raster", "course", "matrix")
    before = {view: picture(browser, view) for view in views}
    x, y = place(browser, 5, 3_000_000)
    point(browser, ("pointerdown", x, y), ("pointerup", x, y))
    assert browser.run("return document.getElementById('detail').dataset.nodes") == "5"
    assert all(picture(browser, view) != old for view, old in before.items())
    browser.press("#ranks", ESCAPE)
    end, _ = place(browser, 5, 100_000_000)
    point(
        browser,
        ("pointerdown", x, y),
        ("pointermove", end, y),
        ("pointerup", end, y),
        ("pointerleave", 0, 0),
    )
    # Half of the messages are posted by then: the first two of four phases of 61 µs.
    assert text(browser, "time") == "Time 0 – 31 µs"
    assert all(picture(browser, view) != before[view] for view in ("fabric", "raster", "course"))


def test_the_pointer_is_in_both_plots_of_time(browser: webdriver.Browser, measured: Path) -> None:
    browser.open(measured)
    before = {view: picture(browser, view) for view in ("ranks", "course")}
    x, y = place(browser, 3, 150_000_000)
    point(browser, ("pointermove", x, y))
    assert all(picture(browser, view) != old for view, old in before.items())
    point(browser, ("pointerleave", 0, 0))
    assert all(picture(browser, view) == old for view, old in before.items())
    browser.run(POINT, "course", [["pointermove", x, y + 60]])
    assert all(picture(browser, view) != old for view, old in before.items())


def test_both_axes_say_whose_time_they_have(browser: webdriver.Browser, measured: Path) -> None:
    browser.open(measured)
    browser.run(
        "window.saved = []; const make = URL.createObjectURL;"
        "URL.createObjectURL = (blob) => { blob.text().then(t => window.saved.push(t));"
        " return make(blob); };"
        "HTMLAnchorElement.prototype.click = () => {};"
        "document.getElementById('save-ranks').click();"
        "document.getElementById('save-course').click();"
    )
    browser.wait("return window.saved.length === 2")
    ranks, course = sorted(browser.run("return window.saved"), key=lambda svg: "expected" in svg)
    assert "measured time since the first rank began" in ranks
    assert ": at the link" in course and "expected time, " in course


def test_close_up_shows_single_calls_and_messages(
    browser: webdriver.Browser, measured: Path
) -> None:
    tables = make_measured(make_run())
    browser.open(measured)
    browser.run("for (let i = 0; i < 3; i++) document.getElementById('rank-in').click()")
    browser.settle()
    # An eighth of the time, about its middle: 87.5 to 112.5 µs.
    total = STEP_PS * STEPS
    start, end = total * 7 // 16, total * 9 // 16
    rank, step = 5, 4
    enter = step * STEP_PS + 5_000_000
    leave = (step + 1) * STEP_PS
    wide = float(browser.run("return document.getElementById('ranks').clientWidth"))

    def tip(ps: float) -> list[str]:
        x = LEFT + (ps - start) / (end - start) * (wide - LEFT - RIGHT_EDGE)
        point(browser, ("pointermove", x, TOP + (rank + 0.5) * TALL))
        return text(browser, "ranks-tip").split("\n")

    late = enter + wait_ps(rank, step)
    assert tip((late + leave) / 2)[1:] == [
        f"MPI_Recv, {PART_NAMES['transfer']} for {(leave - late) / 1e6:.3g} µs",
        f"measured time {late / 1e6:.3g} µs – {leave / 1e6:.3g} µs",
    ]
    assert tip(leave + 1_000_000)[1] == f"{PART_NAMES['computation']} for 5 µs"
    browser.run(
        "window.saved = []; const make = URL.createObjectURL;"
        "URL.createObjectURL = (blob) => { blob.text().then(t => window.saved.push(t));"
        " return make(blob); };"
        "HTMLAnchorElement.prototype.click = () => {};"
        "document.getElementById('save-ranks').click();"
    )
    browser.wait("return window.saved.length === 1")
    drawing = browser.run("return window.saved[0]")
    shown = tables["transfers"].filter(
        (pl.col("send_enter_ps") < end)
        & (pl.col("recv_done_ps") > start)
        & (pl.max_horizontal("src_rank", "dst_rank") < 16)
    )
    arrows = re.search(r'd="([^"]*)"[^>]*stroke-width="0.9"', drawing)
    assert arrows is not None and shown.height > 0
    assert arrows[1].count("M") == 3 * shown.height
    browser.run("document.getElementById('rank-all').click()")
    browser.settle()
    x, y = place(browser, rank, (late + leave) / 2)
    point(browser, ("pointermove", x, y))
    assert len(text(browser, "ranks-tip").split("\n")[1].split("mostly in")) == 2


def test_the_keyboard_goes_from_rank_to_rank(browser: webdriver.Browser, measured: Path) -> None:
    browser.open(measured)
    browser.press("#ranks", RIGHT)
    browser.press("#ranks", DOWN)
    assert text(browser, "rank-detail").startswith("rank 1 on host01: measured time 0 – 1 µs")
    assert browser.run("return document.getElementById('detail').dataset.nodes") == "1"
    browser.press("#ranks", ENTER)
    assert text(browser, "time").startswith("Time 0 – ")


def test_narrow_and_printed(browser: webdriver.Browser, measured: Path) -> None:
    size = {"width": 500, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    browser.command("Emulation.setDeviceMetricsOverride", **size)
    try:
        browser.open(measured)
        wide, view = browser.run(
            "return [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
        )
        assert wide <= view
    finally:
        browser.command("Emulation.clearDeviceMetricsOverride")
    shown = "return document.getElementById('ranks').getBoundingClientRect().height"
    browser.command("Emulation.setEmulatedMedia", media="print")
    try:
        assert browser.run(shown) > 50
    finally:
        browser.command("Emulation.setEmulatedMedia", media="")


def test_names_of_hosts_and_calls_are_text(browser: webdriver.Browser, tmp_path: Path) -> None:
    from tailback.report import write_report

    run = make_run()
    path = write_report(
        tmp_path / "hostile.html",
        run,
        make_diagnosis(run),
        measured=make_measured(run, prefix=HOSTILE),
    )
    browser.open(path)
    x, y = place(browser, 1, 10_000_000)
    point(browser, ("pointermove", x, y), ("pointerdown", x, y), ("pointerup", x, y))
    assert HOSTILE in text(browser, "ranks-tip") and HOSTILE in text(browser, "rank-detail")
    assert browser.run("return window.hacked === undefined")


@pytest.mark.slow
def test_nothing_measured_has_no_ranks_against_time(
    browser: webdriver.Browser, plain: Path
) -> None:
    browser.open(plain)
    assert browser.run("return document.getElementById('ranks')") is None
