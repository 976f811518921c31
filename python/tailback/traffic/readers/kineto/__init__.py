"""Traces of the PyTorch profiler (Kineto)."""
