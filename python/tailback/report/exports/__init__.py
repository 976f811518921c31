"""Results in the formats of other tools: ``tailback export FORMAT FOLDER FILE``.

A new format is one new file here with a function under ``@EXPORTS.register("name")``.
"""

from __future__ import annotations

from tailback.registry import import_parts
from tailback.report.exports.model import EXPORTS, Exported, Result

import_parts(__name__, __path__)

__all__ = ["EXPORTS", "Exported", "Result"]
