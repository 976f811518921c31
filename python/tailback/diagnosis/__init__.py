"""Diagnosis: from the tables of a run to a verdict with a cause and its cost.

``tailback.remedy.diagnose`` adds the remedy.
"""

from __future__ import annotations

from tailback.diagnosis.model import Diagnosis
from tailback.diagnosis.verdict import diagnose_cause, weigh_causes

__all__ = ["Diagnosis", "diagnose_cause", "weigh_causes"]
