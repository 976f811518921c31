"""Exports of Nsight Systems."""
