r"""The page of a Prometheus exporter: ``curl HOST:9100/metrics``, also of ``tailback collect``.

The text format of Prometheus, version 0.0.4, and OpenMetrics::

    # TYPE node_infiniband_port_transmit_wait_total counter
    node_infiniband_port_transmit_wait_total{device="mlx5_0",port="1"} 4242

A page is one reading. Its time is that of a sample, if the exporter adds it, or
``node_time_seconds`` of node_exporter. Otherwise it is that of the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tailback.io.input_files import content, head, is_input_file
from tailback.port_counters.readers.model import CounterData, quoted_text, time_of
from tailback.port_counters.readers.prometheus import PortSeries, counter_value
from tailback.port_counters.schema import CounterError

HAS_TIME_STAMPS = False

_TYPE: Final = re.compile(
    r"^# TYPE [a-zA-Z_:][a-zA-Z0-9_:]* "
    r"(?:counter|gauge|histogram|summary|untyped|unknown|info|stateset)\s*$",
    re.MULTILINE,
)
_SAMPLE: Final = re.compile(
    r"(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(?P<labels>.*)\})?\s+(?P<value>[^\s#]+)"
    r"(?:\s+(?P<time>-?[0-9]+(?:\.[0-9]+)?))?\s*(?:#.*)?"
)
_CLOCK: Final = "node_time_seconds"
_LABEL: Final = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"\s*(?:,|$)')
_ESCAPE: Final = re.compile(r"\\(.)")


def sniff(path: Path) -> bool:
    """A text with a line that states the type of a metric."""
    return is_input_file(path) and _TYPE.search(head(path)) is not None


def read(path: Path, *, time_ns: int | None = None) -> CounterData:
    """Read one page.

    Args:
        path: The file, plain or gzip.
        time_ns: When it was served, UTC nanoseconds, if the page does not state it; the
            modification time of the file when None.

    Raises:
        CounterError: A line is damaged, a sample occurs twice, or no metric is a counter of a port.
    """
    samples = list(_samples(path))
    counters = PortSeries()
    clock = next((value for labels, value, _ in samples if labels["__name__"] == _CLOCK), None)
    page_time = time_of(path, time_ns) if clock is None else round(clock * 1e3) * 1_000_000
    untimed = False
    for labels, value, time in samples:
        name = labels["__name__"]
        if name != _CLOCK and counters.knows(name) and value is not None:  # NaN: it has no value
            counters.add(labels, [(page_time if time is None else time, value)])
            untimed |= time is None and clock is None
    if counters.empty:
        raise CounterError(
            f"none of its {len(samples)} samples is a counter of a port",
            file=path,
            remedy="give the page of tailback collect --metrics, of node_exporter with its "
            "infiniband or netdev collector, or of infiniband_exporter",
        )
    page = counters.data("prometheus page")
    page.untimed = untimed
    if clock is not None:
        page.notes.append(f"times of pages are those that {_CLOCK} states, not those of files")
    return page


_Sample = tuple[dict[str, str], int | float | None, int | None]
"""Labels, value (None if it is not a number of a counter) and time of a sample."""


def _samples(path: Path) -> Iterator[_Sample]:
    """The samples of a page."""
    line_of: dict[tuple[object, ...], int] = {}
    text = content(path, CounterError).decode("utf-8", errors="replace")
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        sample = _SAMPLE.fullmatch(line.strip())
        labels = None if sample is None else _labels(sample["labels"] or "")
        if sample is None or labels is None:
            raise _wrong(path, number, f"{quoted_text(line)} is not a sample")
        labels["__name__"] = sample["name"]
        try:
            value = counter_value(sample["value"])
        except ValueError:
            raise _wrong(path, number, f"{quoted_text(sample['value'])} is not a number") from None
        key = (sample["time"], *sorted(labels.items()))
        if (first := line_of.setdefault(key, number)) != number:
            raise CounterError(
                f"{quoted_text(line)} has the name and labels of line {first}",
                file=path,
                place=f"line {number}, column 1",
                remedy="keep each page of an exporter in a file of its own",
            )
        yield labels, value, None if sample["time"] is None else _time(sample["time"])


def _labels(text: str) -> dict[str, str] | None:
    """The labels of a sample; None if they are damaged."""
    labels, at = {}, 0
    while at < len(text):
        match = _LABEL.match(text, at)
        if match is None:
            return None
        labels[match[1]] = _ESCAPE.sub(lambda c: "\n" if c[1] == "n" else c[1], match[2])
        at = match.end()
    return labels


def _time(text: str) -> int:
    """Time of a sample in nanoseconds: milliseconds in 0.0.4, seconds in OpenMetrics."""
    time = float(text)
    return round(time * (1e6 if time > 1e11 else 1e9))


def _wrong(path: Path, number: int, what: str) -> CounterError:
    return CounterError(
        what,
        file=path,
        place=f"line {number}, column 1",
        remedy="save the page of the exporter as it is",
    )
