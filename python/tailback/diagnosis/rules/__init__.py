"""The rules of a diagnosis: one file per rule, registered under its stable code.

A rule evaluates the :class:`~tailback.diagnosis.run_analysis.RunAnalysis` of a run and returns a
finding or None. To add one, add a file ``tbNNN_*.py`` whose function is registered under its code;
its docstring has the sections *What it does*, *Why it matters*, *Example* and *What to do*, from
which ``docs/reference/rules.md`` is generated (``python -m tailback.diagnosis.rules``).
"""

from __future__ import annotations

from collections.abc import Callable

from tailback.diagnosis.model import Finding
from tailback.diagnosis.run_analysis import RunAnalysis
from tailback.registry import Registry, import_parts

Rule = Callable[[RunAnalysis], Finding | None]

RULES: Registry[Rule] = Registry("rule", "diagnosis rules, by stable code")

MIN_SHARE = 0.05
"""Smallest share of all congested packets at which a rule about congestion trees fires."""

import_parts(__name__, __path__)
