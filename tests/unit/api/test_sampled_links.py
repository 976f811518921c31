"""Links by the samples of real packets: those with most congested packets, with their interval."""

from __future__ import annotations

import polars as pl

from tailback.api.evidence import NetworkEvidence
from tailback.api.explain import SAMPLED_LINKS, _sampled_links
from tailback.fabric.builders import build_preset
