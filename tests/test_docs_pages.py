"""Links between the pages of the documentation lead somewhere, and every page can be found."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
INDEX = DOCS / "index.md"
NOT_A_PAGE = {DOCS / "package-description.md"}
"""What a package index shows; it has no links into the repository."""

STUDIES = sorted(ROOT.glob("studies/*/README.md"))

FENCED = re.compile(r"^( *)(```+).*?^\1\2 *$", re.M | re.S)
LINK = re.compile(r"\]\(([^)\s]+)(?: \"[^\"]*\")?\)")
NAMED = re.compile(
    r"(?<![\w/.-])(?:docs|examples|tests|crates|bench|studies)/[\w./-]*\w(?![\w*/-])"
)
SOURCES = (
    "python/**/*.py",
    "crates/**/*.rs",
    "bench/*.py",
    "studies/**/*.py",
    "studies/**/*.md",
    "scripts/*",
    "examples/**/*.toml",
    "examples/**/*.md",
    "docs/**/*.md",
    "*.md",
)


def pages() -> list[Path]:
    """Every page of the documentation."""
    return sorted(set(DOCS.glob("**/*.md")) - NOT_A_PAGE)


def links(page: Path) -> Iterator[tuple[Path, str, str]]:
    """Relative links of a page: target, anchor (or nothing), and the link as written."""
    for link in LINK.findall(FENCED.sub("", page.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = Path(os.path.normpath(page.parent / path)) if path else page
        yield target, anchor, link


def anchors(page: Path) -> set[str]:
    """Anchors of a page's headings, as GitHub and the site make them."""
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    names = set(re.findall(r'<a (?:id|name)="([^"]+)"', text))
    for title in re.findall(r"^#+ (.*)$", text, re.M):
        plain = re.sub(r"[^\w\s-]", "", title.strip().lower())
        names.add(re.sub(r"\s", "-", plain))
    return names


def dead_links(page: Path) -> list[str]:
    """Links of a page that lead nowhere."""
    dead = []
    for target, anchor, link in links(page):
        if not target.exists() or (anchor and anchor not in anchors(target)):
            dead.append(link)
    return dead


def unreachable(clicks: int) -> set[Path]:
    """Pages that cannot be reached from the index with so many clicks."""
    seen = {INDEX}
    edge = seen
    for _ in range(clicks):
        edge = {target for page in edge if page.suffix == ".md" for target, _, _ in links(page)}
        seen |= edge
    return set(pages()) - seen


def test_links_lead_somewhere() -> None:
    checked = [*pages(), *STUDIES, *ROOT.glob("*.md"), *ROOT.glob("examples/**/*.md")]
    dead = {
        str(page.relative_to(ROOT)): dead_on_page
        for page in checked
        if (dead_on_page := dead_links(page))
    }
    assert not dead


def test_every_page_is_two_clicks_from_the_index() -> None:
    assert not {str(page.relative_to(ROOT)) for page in unreachable(2)}


def test_files_of_the_documentation_that_are_named_exist() -> None:
    """Pages, messages, docstrings and comments name files by their path in the repository."""
    missing = []
    for pattern in SOURCES:
        for file in ROOT.glob(pattern):
            if not file.is_file() or file.name == "CHANGELOG.md":
                continue
            text = file.read_text(encoding="utf-8", errors="replace")
            named = {name for name in NAMED.findall(text) if not re.search("[A-Z]{3}", name)}
            missing += [
                f"{file.relative_to(ROOT)}: {name}"
                for name in sorted(named)
                if not (ROOT / name).exists()
            ]
    assert not missing


def test_dead_links_and_lost_anchors_are_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# One `two`: three\n[a](#one-two-three) [b](#four) [c](page.md#one-two-three) [d](no.md)\n"
        "```\n[e](fenced.md)\n```\n[f](https://example.org/x)\n",
        encoding="utf-8",
    )
    assert dead_links(page) == ["#four", "no.md"]
