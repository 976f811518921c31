"""Common parts of all pages: templates, content policy and writing."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from tailback.errors import RunError
from tailback.io.folders import atomic_file
from tailback.report.packing import in_order


@cache
def asset(name: str) -> str:
    """A script or style sheet of this package, fit to stand inside a page."""
    text = (resources.files("tailback.report") / name).read_text(encoding="utf-8")
    if "</script" in text.lower() or "</style" in text.lower() or "<!--" in text:
        raise RuntimeError(f"{name} cannot be embedded in a page; build the viewer again")
    return text


_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


def template(name: str, filters: Mapping[str, Callable[..., Any]] | None = None) -> jinja2.Template:
    """A page template of this package, which may include others. Inserted values are escaped."""
    folder = resources.files("tailback.report")
    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize_value,
        loader=jinja2.FunctionLoader(lambda part: (folder / part).read_text(encoding="utf-8")),
    )
    environment.filters.update(filters or {})
    return environment.get_template(name)


def _finalize_value(value: object) -> object:
    """A value inserted into a page.

    Names keep their order of writing, control characters become visible, and markup of this package
    is unchanged.
    """
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return in_order(_CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", value))


def content_policy(script: str, style: str) -> str:
    """Nothing from anywhere: only the page's own script, style and images."""
    hashes = (
        base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
        for text in (script, style)
    )
    return (
        "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    ).format(*hashes)


def write_page(path: str | Path, page: str, what: str) -> Path:
    """Write ``page``, called ``what`` in errors.

    An existing file stays until the new one is complete.

    Raises:
        RunError: The file cannot be written.
    """
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(path, force=True) as file:
            file.write(page.encode("utf-8"))
    except OSError as error:
        raise RunError(
            f"cannot write the {what}: {error.strerror}",
            file=path,
            remedy="choose a file you may write to",
        ) from None
    return path
