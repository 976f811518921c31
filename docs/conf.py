"""The documentation as a site: ``make docs`` builds it into ``site/``, offline and searchable."""

import re
import tomllib
from pathlib import Path

from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[1]
CARGO = tomllib.loads((ROOT / "Cargo.toml").read_text(encoding="utf-8"))

project = "Tailback"
author = "The Tailback authors"
version = release = CARGO["workspace"]["package"]["version"]
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["package-description.md"]
# Anchors as GitHub makes them, so that a link works in both.
myst_heading_anchors = 4

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
napoleon_numpy_docstring = False

html_theme = "furo"
html_title = f"Tailback {release}"
html_copy_source = False
html_show_copyright = False
html_show_sphinx = False
# Every name is on the page Python; an index of modules would be reached from nowhere.
html_domain_indices = False


def contents(text: str) -> str:
    """Tables of contents, hidden, for the links of an index: one for each of its sections.

    The site's sidebar and the index that people read are thus the same list.
    """
    trees = []
    for section in re.split(r"^(?=#)", text, flags=re.MULTILINE):
        title = re.match(r"## ([^:\n]*)", section)
        entries = re.findall(r"\[([^\]]*)\]\(([^):]+)\.md\)", section)
        if entries:
            caption = [f":caption: {title[1]}"] if title else []
            listed = [f"{name} <{page}>" for name, page in entries]
            trees.append("\n".join(["```{toctree}", ":hidden:", *caption, "", *listed, "```"]))
    return "\n\n".join(trees)


def add_contents(_app: Sphinx, page: str, source: list[str]) -> None:
    """Give every index its tables of contents."""
    if page.rpartition("/")[2] == "index":
        source[0] += f"\n\n{contents(source[0])}\n"


def offer_studies(_app: Sphinx, _page: str, source: list[str]) -> None:
    """Offer the pages of studies, which are not part of the site, for download."""
    pattern = r"\[([^\]]*)\]\(((?:\.\./)+studies/[\w/]+\.md)(?:#[\w-]+)?\)"
    source[0] = re.sub(pattern, r"{download}`\1 <\2>`", source[0])


def setup(app: Sphinx) -> None:
    """What Sphinx calls first."""
    app.connect("source-read", offer_studies)
    app.connect("source-read", add_contents)
