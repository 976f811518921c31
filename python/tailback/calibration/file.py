"""The calibration file: an ``[engine]`` section of a scenario, with intervals."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import polars as pl

from tailback.calibration.disagreement import Disagreement
from tailback.calibration.estimates import Estimates, FittedValue, Kind
from tailback.calibration.model import CalibrationError
from tailback.errors import as_toml, nearest, option
from tailback.io.folders import atomic_file
from tailback.io.input_files import text_content
from tailback.scenario.engine import EngineSection
from tailback.scenario.model import Scenario, parse
from tailback.units import parse_bytes, parse_gbps, parse_time_ps

_READ: Final = {"time": parse_time_ps, "size": parse_bytes, "rate": parse_gbps}
_REMEDY: Final = "run 'tailback calibrate' again"


@dataclass(frozen=True)
class Calibration:
    """Settings of the engine fitted to a machine.

    Attributes:
        engine: Estimates of settings of the engine.
        measured: Measured quantities that are not settings of the engine.
        not_identified: Settings that keep their defaults, and why.
        notes: Notes on the estimates.
        files: The files that were fitted.
        settings: The ``[engine]`` section, as text of a scenario; a user may have changed it.
        disagreements: Tests that differ between hosts, which are not fitted.
    """

    engine: list[FittedValue]
    measured: list[FittedValue] = field(default_factory=list)
    not_identified: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    disagreements: list[Disagreement] = field(default_factory=list)

    @staticmethod
    def of(estimates: Estimates, files: Sequence[str]) -> Calibration:
        """The calibration with these estimates."""
        settings = {
            estimate.name: text(estimate.kind, estimate.value) for estimate in estimates.engine
        }
        return Calibration(
            estimates.engine,
            estimates.measured,
            estimates.not_identified,
            estimates.notes,
            list(files),
            settings,
            estimates.disagreements,
        )

    def apply(self, scenario: Scenario) -> Scenario:
        """The scenario with these settings; its other settings do not change.

        Raises:
            ScenarioError: A setting contradicts one of the scenario.
        """
        # What the scenario does not state stays open: a diagnosis may then choose it.
        data = scenario.model_dump(mode="json", exclude_unset=True)
        data["engine"] = {**data.get("engine", {}), **self.settings}
        return parse(data)

    @property
    def frame(self) -> pl.DataFrame:
        """One row per quantity: parameter, value, low, high (ps, bytes, Gb/s), unit, source, n."""
        unit = {"time": "ps", "size": "bytes", "rate": "Gb/s"}
        rows = [
            (fit.name, fit.value, fit.low, fit.high, unit[fit.kind], fit.source, fit.n, setting)
            for setting, fits in ((True, self.engine), (False, self.measured))
            for fit in fits
        ]
        columns = {
            "parameter": pl.String,
            "value": pl.Float64,
            "low": pl.Float64,
            "high": pl.Float64,
            "unit": pl.String,
            "source": pl.String,
            "n": pl.Int64,
            "engine_setting": pl.Boolean,
        }
        return pl.DataFrame(rows, columns, orient="row")

    def _repr_html_(self) -> str:
        return self.frame._repr_html_()

    def write(self, path: str | Path, *, force: bool = False) -> Path:
        """Write the calibration file atomically.

        Args:
            path: A new file.
            force: Overwrite it.

        Raises:
            CalibrationError: The file exists (without ``force``) or cannot be written.
        """
        try:
            with atomic_file(path, force=force) as file:
                file.write(self.toml().encode())
        except FileExistsError:
            raise CalibrationError(
                "exists", file=path, remedy=f"choose another name, or add {option('force', True)}"
            ) from None
        except OSError as error:
            raise CalibrationError(
                f"cannot be written: {error.strerror}", file=path, remedy="check folder and disk"
            ) from None
        return Path(path)

    def toml(self) -> str:
        """The file's text."""
        lines = ["# Settings of Tailback's engine, fitted to a machine by 'tailback calibrate'."]
        lines += [f"# from {_quoted(name)}" for name in self.files]
        notes = [*(disagreement.text() for disagreement in self.disagreements), *self.notes]
        lines += [f"# note: {_quoted(note)}" for note in notes]
        lines += ["", "[engine]"]
        by_name = {fitted.name: fitted for fitted in self.engine}
        for name, value in self.settings.items():
            about = by_name.get(name)
            between = f"  # {_range_text(about)}" if about else ""
            lines.append(f"{name} = {_quoted(value)}{between}")
        for title, some in (("calibration", self.engine), ("measured", self.measured)):
            lines += ["", f"[{title}]"]
            lines += [_entry(fitted) for fitted in some]
        lines += ["", "[not_identified]"]
        lines += [f"{name} = {_quoted(why)}" for name, why in self.not_identified.items()]
        return "\n".join(lines) + "\n"


def text(kind: Kind, value: float) -> str:
    """A value in scenario syntax."""
    if kind == "time":
        return f"{round(value) / 1000:.3f}".rstrip("0").rstrip(".") + " ns"
    if kind == "size":
        return f"{round(value)} B"
    return f"{value:.6g} Gb/s" if 1e-4 < value < 1e16 else f"{value!r} Gb/s"


def _interval_text(fitted: FittedValue) -> tuple[str, str]:
    """The interval as text, rounded outwards."""
    if fitted.kind == "rate":
        step = 10.0 ** (math.floor(math.log10(max(fitted.value, 1e-9))) - 4)
        low, high = math.floor(fitted.low / step) * step, math.ceil(fitted.high / step) * step
        return text("rate", min(low, fitted.low) if low > 0 else fitted.low), text("rate", high)
    return text(fitted.kind, math.floor(fitted.low)), text(fitted.kind, math.ceil(fitted.high))


def _range_text(fitted: FittedValue) -> str:
    low, high = _interval_text(fitted)
    return f"{low} to {high}"


def _entry(fitted: FittedValue) -> str:
    low, high = _interval_text(fitted)
    return (
        f"{fitted.name} = {{ value = {_quoted(text(fitted.kind, fitted.value))}, "
        f"low = {_quoted(low)}, high = {_quoted(high)}, source = {_quoted(fitted.source)}, "
        f"n = {fitted.n} }}"
    )


def _quoted(value: object) -> str:
    """A TOML string on one line."""
    plain = str(value).replace("\\", "\\\\").replace('"', '\\"')
    safe = "".join(
        char
        if char.isprintable()
        else f"\\u{min(ord(char), 0xFFFF):04x}"
        if not 0xD800 <= ord(char) < 0xE000
        else "\N{REPLACEMENT CHARACTER}"
        for char in plain
    )
    return f'"{safe}"'


_SECTIONS = ("engine", "calibration", "measured", "not_identified")


def load(path: str | Path) -> Calibration:
    """Read a calibration file.

    Args:
        path: What :meth:`Calibration.write` wrote; values in ``[engine]`` may have been changed.

    Raises:
        CalibrationError: It cannot be read, is not TOML, or a table is damaged.
        ScenarioError: A key or value of ``[engine]`` is wrong.
    """
    path = Path(path)
    try:
        data = tomllib.loads(text_content(path, CalibrationError))
    except (ValueError, RecursionError) as error:
        raise CalibrationError(
            f"not valid TOML: {error}",
            file=path,
            remedy="give a file that 'tailback calibrate --out' wrote",
        ) from None
    settings = data.get("engine")
    if not isinstance(settings, dict):
        raise CalibrationError("has no section [engine]", file=path, remedy=_REMEDY)
    for title in data:
        if title not in _SECTIONS:
            raise CalibrationError(
                "has no meaning in a calibration",
                file=path,
                place=f"[{title}]",
                remedy=f"leave it out, or give the file as {option('fabric')}; "
                f"{nearest(title, _SECTIONS)}",
            )
    # Parse it inside a scenario to check keys and values.
    parse({"fabric": {"preset": "tapered"}, "job": [{"trace": "."}], "engine": settings}, path)
    reasons = {name: str(why) for name, why in _table(data, "not_identified", path).items()}
    return Calibration(
        engine=_estimates(data, "calibration", path, settings=EngineSection.model_fields),
        measured=_estimates(data, "measured", path),
        not_identified=reasons,
        settings=settings,
    )


def _table(data: dict[str, Any], title: str, path: Path) -> dict[str, Any]:
    table = data.get(title, {})
    if not isinstance(table, dict):
        raise CalibrationError(f"{title} is not a table", file=path, remedy=_REMEDY)
    return table


def _estimates(
    data: dict[str, Any], title: str, path: Path, settings: dict[str, Any] | None = None
) -> list[FittedValue]:
    out = []
    for name, entry in _table(data, title, path).items():
        place = f"[{title}] {name}"
        if settings is not None and name not in settings:
            raise CalibrationError(
                f"{name!r} is not a setting of the engine", file=path, place=place, remedy=_REMEDY
            )
        if not isinstance(entry, dict):
            raise CalibrationError("is not a table", file=path, place=place, remedy=_REMEDY)
        kind, numbers = _numbers(entry, path, place)
        n, source = entry.get("n", 0), entry.get("source", "")
        if not isinstance(n, int) or not isinstance(source, str):
            raise CalibrationError(
                f"n = {as_toml(n)}, source = {as_toml(source)}: a whole number and a text are "
                "needed",
                file=path,
                place=place,
                remedy=_REMEDY,
            )
        out.append(FittedValue(name, kind, *numbers, source, n))
    return out


def _numbers(
    entry: dict[str, Any], path: Path, place: str
) -> tuple[Kind, tuple[float, float, float]]:
    """Kind, value and interval of an entry."""
    fields = [entry.get(key) for key in ("value", "low", "high")]
    kinds: tuple[Kind, ...] = ("time", "size", "rate")
    for kind in kinds:
        try:
            value, low, high = (float(_READ[kind](quantity)) for quantity in fields)
        except ValueError:
            continue
        if low <= value <= high:
            return kind, (value, low, high)
        break
    listed = ", ".join(as_toml(quantity) for quantity in fields)
    raise CalibrationError(
        f"value, low and high are {listed}; they must be quantities of one unit, "
        "low ≤ value ≤ high",
        file=path,
        place=place,
        remedy=_REMEDY,
    )
