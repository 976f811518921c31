"""The five papers whose figures and tables are indexed."""

from __future__ import annotations

from typing import Final

from studies.published import infiniband, rates, talk, thesis, torus

PAPERS: Final = {
    "thesis": thesis.FIGURES,
    "talk": talk.FIGURES,
    "infiniband": infiniband.FIGURES,
    "torus": torus.FIGURES,
    "rates": rates.FIGURES,
}
"""Entries of each paper, in the paper's order."""

FITS: Final = (*infiniband.FITS, *torus.FITS, *talk.FITS)
"""Figures whose own numbers chose the settings."""
