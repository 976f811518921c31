"""DUMPI traces."""
